// A memif peer that shares no code with Sluice: govpp's gomemif, in either role.
//
//	gomemif -role client|server -socket PATH|@NAME -id N [-ip] [-frames FILE] [-echo]
//
// When the link is up it says `up` and sends each line of FILE, a frame in hexadecimal, once. Each
// frame that it receives it says as `frame HEX`; with -echo it sends a UDP datagram over IPv4 back
// to where it came from. It ends when the link ends. With -ip the link carries IP packets; frames
// have a header here nevertheless, of which nothing is sent.
//
// gomemif sends and receives frames of one buffer only, and its client receives into the buffers
// that it sends from. So nobody sends more frames here than a ring has descriptors, and answers
// come in the order of what they answer.
package main

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.fd.io/govpp/extras/gomemif/memif"
)

const (
	headers   = 14 + 20 + 8 // Ethernet, IPv4 without options, UDP
	longest   = 65536
	retry     = 50 * time.Millisecond
	ringFull  = time.Millisecond
	connected = time.Millisecond
)

// The peer's interface: one queue in each direction.
type peer struct {
	echo    bool
	skip    int        // bytes of a frame that the link does not carry
	sending sync.Mutex // frames of the file and echoes come from two goroutines
	up      chan struct{}
	down    chan struct{}
	frame   []byte
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "gomemif: "+format+"\n", values...)
	os.Exit(1)
}

func main() {
	role := flag.String("role", "client", "client or server")
	path := flag.String("socket", "", "the control socket")
	id := flag.Uint("id", 0, "the interface's number")
	file := flag.String("frames", "", "frames to be sent, one in hexadecimal a line")
	ip := flag.Bool("ip", false, "the link carries IP packets")
	echo := flag.Bool("echo", false, "send UDP datagrams back")
	flag.Parse()
	frames := read(*file)
	new := &peer{
		echo:  *echo,
		up:    make(chan struct{}),
		down:  make(chan struct{}),
		frame: make([]byte, longest),
	}
	mode := memif.InterfaceModeEthernet
	if *ip {
		mode, new.skip, new.frame[12] = memif.InterfaceModeIp, 14, 8
	}
	socket, err := memif.NewSocket("gomemif", *path)
	if err != nil {
		fail("%v", err)
	}
	link, err := socket.NewInterface(&memif.Arguments{
		Id:               uint32(*id),
		IsMaster:         *role == "server",
		Name:             "gomemif",
		Mode:             mode,
		ConnectedFunc:    func(*memif.Interface) error { close(new.up); return nil },
		DisconnectedFunc: func(*memif.Interface) error { close(new.down); return nil },
		InterruptFunc:    new.receive,
	})
	if err != nil {
		fail("%v", err)
	}
	// Errors of the control channel are only said: what they mean is seen in what comes.
	errors := make(chan error)
	go func() {
		for err := range errors {
			fmt.Fprintln(os.Stderr, "gomemif:", err)
		}
	}()
	socket.StartPolling(errors)
	if *role != "server" {
		for link.RequestConnection() != nil {
			time.Sleep(retry)
		}
	}
	new.talk(link, frames)
}

// Reads a file of frames; none without a name.
func read(name string) (frames [][]byte) {
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		fail("%v", err)
	}
	for _, line := range strings.Fields(string(text)) {
		frame, err := hex.DecodeString(line)
		if err != nil {
			fail("%s: %v", name, err)
		}
		frames = append(frames, frame)
	}
	return frames
}

// Sends the frames when the link is up, and returns when it is down.
func (p *peer) talk(link *memif.Interface, frames [][]byte) {
	<-p.up
	// Called before the handshake's last message is sent or taken.
	for !link.IsConnected() {
		time.Sleep(connected)
	}
	if err := lend(link); err != nil {
		fail("%v", err)
	}
	fmt.Println("up")
	for _, frame := range frames {
		p.send(link, frame)
	}
	fmt.Println("sent", len(frames))
	<-p.down
	fmt.Println("down")
}

// A client's ring is empty until it lends its buffers to the server, and only ReadPacket or this
// does that; but nothing that could be read comes before.
func lend(link *memif.Interface) error {
	if link.IsMaster() {
		return nil
	}
	queue, err := link.GetRxQueue(0)
	if err == nil {
		queue.Refill(0)
	}
	return err
}

func (p *peer) send(link *memif.Interface, frame []byte) {
	p.sending.Lock()
	defer p.sending.Unlock()
	queue, err := link.GetTxQueue(0)
	if err != nil {
		fail("%v", err)
	}
	for queue.WritePacket(frame[p.skip:]) == 0 {
		time.Sleep(ringFull)
	}
}

// Takes what has come. Called when the ring's eventfd was raised.
func (p *peer) receive(link *memif.Interface) error {
	queue, err := link.GetRxQueue(0)
	if err != nil {
		return err
	}
	event, _ := queue.GetEventFd()
	// Before the ring is looked at, so that what comes afterwards raises it again.
	syscall.Read(event, make([]byte, 8))
	for {
		length, err := queue.ReadPacket(p.frame[p.skip:])
		if err != nil {
			fail("%v", err)
		}
		if length == 0 {
			return nil
		}
		frame := p.frame[:p.skip+length]
		fmt.Println("frame", hex.EncodeToString(frame))
		if p.echo && turn(frame) {
			p.send(link, frame)
		}
	}
}

// Turns a UDP datagram over IPv4 round, which leaves its checksums right. False for all else.
func turn(frame []byte) bool {
	if len(frame) < headers || frame[12] != 8 || frame[13] != 0 || frame[14] != 0x45 ||
		frame[23] != syscall.IPPROTO_UDP {
		return false
	}
	for _, swapped := range []struct{ at, bytes int }{{0, 6}, {26, 4}, {34, 2}} {
		one := frame[swapped.at : swapped.at+swapped.bytes]
		other := frame[swapped.at+swapped.bytes : swapped.at+2*swapped.bytes]
		for index := range one {
			one[index], other[index] = other[index], one[index]
		}
	}
	return true
}

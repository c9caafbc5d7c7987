//! One end of a TCP connection: enough of RFC 9293 to open, transfer, close in every order,
//! retransmit and give up. Without I/O and clock: it is told what came and what time it is, and
//! says what it sends.

use super::script::{Close, Script};
use crate::rng::Rng;
use crate::wire::{ACK, FIN, PSH, Packet, RST, SYN, Seen, Stream, Tuple, is_v4};

/// First retransmission after this time; each one more doubles it.
const RTO_MS: u64 = 120;
const RETRIES: u32 = 5;
/// What a client still sends after the real server closed its side.
const AFTERWARDS: u32 = 150;
/// Of a thousand segments that come, so many make somebody else send one in the receiver's name.
const FORGED: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SynSent,
    SynReceived,
    Open,
    /// Over, by whatever way; answers what still comes.
    Over,
}

/// Sequence number comparison (RFC 9293 3.4).
const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    /// Of what it sends.
    tuple: Tuple,
    pub node: usize,
    state: State,
    client: bool,
    script: Script,
    /// The client's initial sequence number.
    pub token: u32,
    iss: u32,
    /// Oldest byte that is not acknowledged, next to be sent, and behind the last ever sent.
    una: u32,
    next: u32,
    top: u32,
    received: u32,
    /// What its data tells of besides, as SACK: some ends do not stop at an acknowledgement.
    reported: Option<(u32, u32)>,
    /// Bytes of the header that the other end's stream began with.
    header: u32,
    peer_closed: bool,
    /// Bytes of its stream that may be sent by now.
    allowed: u32,
    closing: bool,
    silent: bool,
    thinking: bool,
    retries: u32,
    /// When it wants to be told the time; 0 for never.
    pub timer_at: u64,
    /// The next time at which it will be told; 0 for never.
    pub alarm_at: u64,
    rng: Rng,
}

/// What an end wants to be done.
#[derive(Default)]
pub(crate) struct Wishes {
    pub packets: Vec<(usize, Packet)>,
    /// Stream contents that were not what the other end sent.
    pub wrong: Option<String>,
}

impl Conn {
    /// A client that is about to send its SYN.
    pub fn client(tuple: Tuple, node: usize, token: u32, script: Script) -> Self {
        Self::new(tuple, node, token, script, (State::SynSent, token))
    }

    /// A real server that was sent a SYN.
    pub fn server(tuple: Tuple, node: usize, token: u32, script: Script) -> Self {
        let iss = crate::rng::scramble(u64::from(token) ^ 0x77) as u32;
        let mut conn = Self::new(tuple, node, token, script, (State::SynReceived, iss));
        conn.received = token.wrapping_add(1);
        conn
    }

    fn new(t: Tuple, node: usize, token: u32, script: Script, (state, iss): (State, u32)) -> Self {
        Self {
            tuple: t,
            node,
            state,
            client: state == State::SynSent,
            script,
            token,
            iss,
            una: iss,
            next: iss,
            top: iss,
            received: 0,
            reported: None,
            header: 0,
            peer_closed: false,
            allowed: 0,
            closing: false,
            silent: false,
            thinking: false,
            retries: 0,
            timer_at: 0,
            alarm_at: 0,
            rng: Rng::of(&[token.into(), state as u64]),
        }
    }

    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether a SYN opens a new connection in place of this one.
    pub fn yields_to(&self, seq: u32) -> bool {
        self.is_over() && (seq == self.token || !before(seq, self.received))
    }

    fn packet(&mut self, flags: u8, seq: u32) -> Packet {
        let v4 = is_v4(self.tuple.src);
        Packet {
            tuple: self.tuple,
            ttl: 64 - self.rng.below(8) as u8,
            tos: (self.token as u8 & 7) << 2,
            id: self.rng.next() as u32 & if v4 { 0xffff } else { 0xf_ffff },
            df: v4 && self.token & 8 != 0,
            seq,
            ack: if flags & ACK != 0 { self.received } else { 0 },
            flags,
            window: 8000 + (seq as u16 & 0xfff),
            mss: if flags & SYN != 0 { self.script.mss } else { 0 },
            checksum: true,
            ..Packet::default()
        }
    }

    fn stream(&self, mine: bool) -> u32 {
        if mine == self.client { self.token } else { !self.token }
    }

    /// Sends its SYN, or its answer to one.
    pub fn open(&mut self, now: u64, out: &mut Wishes) {
        let flags = if self.client { SYN } else { SYN | ACK };
        if !self.client && self.script.close == Close::Refused {
            self.state = State::Over;
            return self.send(RST | ACK, 0, out);
        }
        self.send(flags, self.iss, out);
        self.next = self.iss.wrapping_add(1);
        self.top = self.next;
        self.arm(now);
    }

    fn send(&mut self, flags: u8, seq: u32, out: &mut Wishes) {
        let packet = self.packet(flags, seq);
        out.packets.push((self.node, packet));
    }

    fn arm(&mut self, now: u64) {
        self.timer_at = now + (RTO_MS << self.retries);
    }

    /// A segment came; `data` is its payload.
    pub fn receive(&mut self, now: u64, seen: &Seen, data: &[u8], out: &mut Wishes) {
        let Packet { flags, seq, ack, .. } = seen.packet;
        if self.silent {
            return;
        }
        if flags & RST != 0 {
            // RFC 5961 3.2: one that is not exact is answered, whoever sent it.
            match self.state {
                State::SynSent if ack != self.iss.wrapping_add(1) => {}
                State::Open if seq != self.received => self.send(ACK, self.next, out),
                _ => self.finish(),
            }
            return;
        }
        match self.state {
            State::SynSent if flags & (SYN | ACK) == SYN | ACK => {
                if ack != self.iss.wrapping_add(1) {
                    return self.send(RST, ack, out);
                }
                if seq != self.peer_iss() {
                    out.wrong = Some(format!("somebody else answers {}", self.tuple));
                }
                self.received = seq.wrapping_add(1);
                // The director may have put something else in than the real server meant.
                if seen.packet.mss != 0 {
                    self.script.mss = self.script.mss.min(seen.packet.mss);
                }
                self.established(ack);
                self.send(ACK, self.next, out);
            }
            State::SynSent if flags & ACK != 0 => return self.send(RST, ack, out),
            State::SynSent => return,
            _ if flags & SYN != 0 => {
                let again = self.state == State::SynReceived && seq == self.token;
                let (flags, seq) = if again { (SYN | ACK, self.iss) } else { (ACK, self.next) };
                return self.send(flags, seq, out);
            }
            State::SynReceived if ack == self.iss.wrapping_add(1) => self.established(ack),
            State::SynReceived => return,
            State::Over if flags & FIN != 0 => return self.send(ACK, self.next, out),
            State::Over => return,
            State::Open => {}
        }
        self.take(seen, data, out);
        if self.state == State::Open {
            self.advance(now, out);
            self.transmit(now, out);
        }
        if self.state == State::Open && self.rng.chance(FORGED) {
            self.forge(out);
        }
    }

    /// Somebody who sees none of its packets sends one in its name.
    fn forge(&mut self, out: &mut Wishes) {
        let flags = *self.rng.pick(&[RST, RST | ACK, FIN | ACK, ACK]);
        let (seq, ack) = (self.rng.next() as u32, self.rng.next() as u32);
        let mut packet = self.packet(flags, seq);
        packet.ack = if flags & ACK != 0 { ack } else { 0 };
        out.packets.push((self.node, packet));
    }

    fn established(&mut self, ack: u32) {
        self.state = State::Open;
        self.una = ack;
        self.retries = 0;
        self.timer_at = 0;
        match self.script.close {
            Close::ClientVanishes | Close::Scan if self.client => self.silent = true,
            _ if self.client => self.allowed = self.script.request,
            _ => {}
        }
    }

    fn finish(&mut self) {
        self.state = State::Over;
        self.timer_at = 0;
    }

    /// Takes acknowledgement and data.
    fn take(&mut self, seen: &Seen, data: &[u8], out: &mut Wishes) {
        let Packet { flags, seq, ack, .. } = seen.packet;
        if flags & ACK != 0 && before(self.una, ack) && !before(self.top, ack) {
            self.una = ack;
            if before(self.next, ack) {
                self.next = ack;
            }
            self.retries = 0;
            self.timer_at = 0;
        }
        let fin = flags & FIN != 0;
        if data.is_empty() && !fin {
            return;
        }
        if seq == self.received && !self.peer_closed {
            let peer_first = if self.client { self.peer_iss() } else { self.token };
            let at = seq.wrapping_sub(peer_first.wrapping_add(1));
            let data = if at == 0 && !self.client { self.without_header(data) } else { data };
            let at = if at == 0 { 0 } else { at - self.header };
            let token = self.stream(false);
            let piece = Stream { token, at, len: data.len() as u16, headed: false };
            if !piece.is(data) {
                out.wrong = Some(format!("stream contents at byte {at} of {}", self.tuple));
            }
            let taken = data.len() as u32 + if at == 0 { self.header } else { 0 };
            self.received = seq.wrapping_add(taken).wrapping_add(fin.into());
            self.peer_closed = fin;
        }
        // What lies apart, or came again (RFC 2018, RFC 2883). Some ends tell of all that comes.
        let tells = self.token & 6 == 0 || seq.wrapping_add(data.len() as u32) != self.received;
        let mut packet = self.packet(ACK, self.next);
        let block = (seq, seq.wrapping_add(data.len() as u32));
        packet.sack = Some(block).filter(|_| tells && !data.is_empty());
        self.reported = packet.sack.filter(|_| self.token & 6 == 0);
        out.packets.push((self.node, packet));
    }

    /// A stream's first data without a header of the PROXY protocol, if it begins with one.
    fn without_header<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let length = match data {
            [b'P', b'R', b'O', b'X', b'Y', b' ', ..] => {
                data.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1)
            }
            [13, 10, 13, 10, 0, 13, 10, b'Q', b'U', b'I', b'T', 10, _, _, high, low, ..] => {
                16 + usize::from(u16::from_be_bytes([*high, *low]))
            }
            _ => 0,
        };
        self.header = length as u32;
        data.get(length..).unwrap_or_default()
    }

    fn peer_iss(&self) -> u32 {
        crate::rng::scramble(u64::from(self.token) ^ 0x77) as u32
    }

    /// Bytes of the other end's stream that came.
    fn got(&self) -> u32 {
        let first = if self.client { self.peer_iss() } else { self.token };
        let more = 1 + self.header + u32::from(self.peer_closed);
        self.received.wrapping_sub(first).wrapping_sub(more)
    }

    /// What the script says, by what came so far.
    fn advance(&mut self, now: u64, out: &mut Wishes) {
        if self.client {
            self.client_side(now, out)
        } else {
            self.server_side(out)
        }
        let all = self.iss.wrapping_add(1 + self.allowed);
        // A FIN is one more; both are over when all is acknowledged.
        if self.closing && self.peer_closed && self.una == all.wrapping_add(1) {
            self.finish();
        }
    }

    fn client_side(&mut self, now: u64, out: &mut Wishes) {
        let Script { rounds, request, response, think_ms, close, .. } = self.script;
        let sent_all = self.allowed >= rounds * request;
        let answered = self.got() >= self.allowed / request.max(1) * response;
        if close == Close::ClientAborts && self.una != self.iss.wrapping_add(1) {
            self.send(RST | ACK, self.next, out);
            return self.finish();
        }
        if answered && !sent_all && !self.thinking && !self.closing && !self.peer_closed {
            self.thinking = true;
            self.timer_at = now + think_ms;
        }
        let done = match close {
            Close::Client => sent_all && answered,
            Close::HalfClient | Close::Both => sent_all,
            Close::Never => self.peer_closed,
            _ => self.peer_closed,
        };
        if close == Close::HalfServer && self.peer_closed && !self.closing {
            self.allowed += AFTERWARDS;
        }
        self.closing |= done || self.peer_closed;
    }

    fn server_side(&mut self, out: &mut Wishes) {
        let Script { rounds, request, response, close, .. } = self.script;
        let requests = (self.got() / request.max(1)).min(rounds);
        if requests > 0 && close == Close::ServerAborts {
            self.send(RST | ACK, self.next, out);
            return self.finish();
        }
        self.silent |= requests > 0 && close == Close::ServerVanishes;
        if !self.closing {
            self.allowed = self.allowed.max(requests * response);
        }
        let all = requests >= rounds;
        self.closing |= self.peer_closed
            || all && matches!(close, Close::Server | Close::HalfServer | Close::Both);
    }

    /// Sends what may be sent.
    fn transmit(&mut self, now: u64, out: &mut Wishes) {
        let end = self.iss.wrapping_add(1).wrapping_add(self.allowed);
        let window = self.script.window.max(self.script.mss.into());
        while before(self.next, end) && self.next.wrapping_sub(self.una) < window {
            let option = if self.reported.is_some() { 12 } else { 0 };
            let most = self.script.mss.saturating_sub(option).max(8);
            let len = end.wrapping_sub(self.next).min(most.into());
            let at = self.next.wrapping_sub(self.iss.wrapping_add(1));
            let last = self.next.wrapping_add(len) == end;
            let fin = if last && self.closing && self.token & 1 == 0 { FIN } else { 0 };
            let push = if last { PSH } else { 0 };
            let mut packet = self.packet(ACK | push | fin, self.next);
            let token = self.stream(true);
            packet.payload = Stream { token, at, len: len as u16, headed: false };
            packet.sack = self.reported;
            out.packets.push((self.node, packet));
            self.next = self.next.wrapping_add(len + u32::from(fin != 0));
        }
        if self.closing && self.next == end {
            self.send(ACK | FIN, self.next, out);
            self.next = self.next.wrapping_add(1);
        }
        if before(self.top, self.next) {
            self.top = self.next;
        }
        if self.una != self.next && (self.timer_at == 0 || self.timer_at < now) {
            self.arm(now);
        }
    }

    /// Its packets must not be longer than this.
    pub fn shrink(&mut self, mtu: u16) {
        let headers = if is_v4(self.tuple.src) { 40 } else { 60 };
        self.script.mss = self.script.mss.min(mtu.saturating_sub(headers)).max(8);
    }

    /// Its timer fired.
    pub fn tick(&mut self, now: u64, out: &mut Wishes) {
        self.timer_at = 0;
        if self.silent || self.is_over() {
            return;
        }
        if self.thinking {
            self.thinking = false;
            self.allowed += self.script.request;
            return self.transmit(now, out);
        }
        if self.una == self.top {
            return;
        }
        self.retries += 1;
        if self.retries > RETRIES || self.script.close == Close::Scan {
            return self.finish();
        }
        match self.state {
            State::SynSent => self.send(SYN, self.iss, out),
            State::SynReceived => self.send(SYN | ACK, self.iss, out),
            _ => {
                self.next = self.una;
                self.timer_at = 0;
                return self.transmit(now, out);
            }
        }
        self.arm(now);
    }
}

module gomemif

go 1.18

require go.fd.io/govpp/extras v0.1.0

package vswitch

import (
	"os"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"

	"github.com/sluice-net/sluice/internal/vswitch/internal/wire"
)

// processHandlers handle the requests about the process: its version, threads and CLI.
type processHandlers struct {
	version string
	cli     *console
}

func (h processHandlers) vlibMessages() []*message {
	return []*message{
		request(h.cliInband), reply(new(vlib.CliInbandReply)),
		request(h.showThreads), reply(new(vlib.ShowThreadsReply)),
	}
}

func (h processHandlers) vpeMessages() []*message {
	return []*message{request(h.showVersion), reply(new(vpe.ShowVersionReply))}
}

func pid() uint32 { return uint32(os.Getpid()) }

func (h processHandlers) showVersion(_ *vpe.ShowVersion, reply func(govpp.Message)) {
	reply(&vpe.ShowVersionReply{Program: "vpe", Version: h.version})
}

// versionText returns a version that fits the 32 bytes of the message. A version that begins with
// sluice-vswitch means that rules match ports of SCTP.
func versionText(version string, likeVPP bool) string {
	if likeVPP {
		return wire.Cut("like-vpp "+version, 31)
	}
	return wire.Cut("sluice-vswitch "+version, 31)
}

func (processHandlers) showThreads(_ *vlib.ShowThreads, reply func(govpp.Message)) {
	reply(&vlib.ShowThreadsReply{Count: 1, ThreadData: []vlib.ThreadData{{Name: "vpe_main", PID: pid()}}})
}

func (h processHandlers) cliInband(m *vlib.CliInband, reply func(govpp.Message)) {
	text, rv := h.cli.run(m.Cmd)
	reply(&vlib.CliInbandReply{Retval: int32(rv), Reply: text})
}

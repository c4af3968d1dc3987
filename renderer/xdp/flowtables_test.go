package xdp

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestFlowTablesAreNamed(t *testing.T) {
	m := (&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET}).Serialize()
	m = append(m, nl.NewRtAttr(flowTableTable, nl.ZeroTerminated("filter")).Serialize()...)
	m = append(m, nl.NewRtAttr(flowTableName, nl.ZeroTerminated("fast")).Serialize()...)
	if got, err := flowTable(m); err != nil || got != "fast of table inet filter" {
		t.Errorf("it is %q: %v", got, err)
	}
	for cut := range nl.SizeofNfgenmsg {
		if got, err := flowTable(m[:cut]); err == nil {
			t.Errorf("%d bytes of a message are %q", cut, got)
		}
	}
	if all, err := FlowTables(); err != nil && os.Getuid() == 0 {
		t.Errorf("of this node: %v, %v", all, err)
	}
}

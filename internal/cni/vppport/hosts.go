package vppport

import (
	"context"
	"fmt"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// maxHosts is how many host-interfaces one thread of VPP may read.
//
// VPP since 25.06 asks the kernel for 16 readable sockets at a time, and asks again before it does
// anything else for as long as it gets 16 (src/vlib/file.c, vlib_file_poll). A graph node reads
// packet sockets, afterwards. So 16 packet sockets of a thread that are readable at the same time
// stop that thread for good. Four are left for clients of the API that end, which are readable
// sockets, too.
const maxHosts = 12

// checkHosts refuses a host-interface if its thread reads too many. VPP gives queues to its workers
// in turn, so another try may have another thread.
func (c *Client) checkHosts(ctx context.Context, index interface_types.InterfaceIndex) error {
	all, err := c.details(ctx)
	if err != nil {
		return err
	}
	queues, err := vpp.Drain[*interfaces.SwInterfaceRxPlacementDetails](interfaces.NewServiceClient(vpp.Streams{Connection: c.conn}).SwInterfaceRxPlacementDump(ctx,
		&interfaces.SwInterfaceRxPlacementDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}))
	if err != nil {
		return fmt.Errorf("list VPP's queues: %w", err)
	}
	isHost := map[interface_types.InterfaceIndex]bool{}
	for _, d := range all {
		isHost[d.SwIfIndex] = d.InterfaceDevType == "af-packet"
	}
	var thread uint32
	count := map[uint32]int{} // by thread
	for _, q := range queues {
		if isHost[q.SwIfIndex] {
			count[q.WorkerID]++
		}
		if q.SwIfIndex == index {
			thread = q.WorkerID
		}
	}
	if count[thread] > maxHosts {
		return fmt.Errorf("too many host-interfaces: thread %d of VPP reads %d others, and stops for good when 16 have a packet at once (VPP 25.06 and later): "+
			`set "interface" to "tap" or "memif", or give VPP more workers`, thread, maxHosts)
	}
	return nil
}

package xdp

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Permits implements Plane.
func (k *Kernel) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	if k.links[id] == nil {
		return true, nil
	}
	name := bpf.SluiceProgAskTo
	if dir == compile.FromPod {
		name = bpf.SluiceProgAskFrom
	}
	return k.run(name, id, Frame(f, false))
}

// Probe says what becomes of a packet that an endpoint sends or receives, and leaves the
// state that the packet would leave.
func (k *Kernel) Probe(id uint32, dir compile.Direction, frame []byte) (bool, error) {
	name := bpf.SluiceProgProbeTo
	if dir == compile.FromPod {
		name = bpf.SluiceProgProbeFrom
	}
	return k.run(name, id, frame)
}

// run has the kernel run a program on a packet.
func (k *Kernel) run(name string, id uint32, frame []byte) (bool, error) {
	ctx := struct{ Len, PktType, Mark uint32 }{Mark: id}
	var full [192]byte // as large as what the kernel takes; zero behind
	*(*struct{ Len, PktType, Mark uint32 })(unsafe.Pointer(&full)) = ctx
	k.running.RLock()
	defer k.running.RUnlock()
	program, err := k.program(name)
	if err != nil {
		return false, err
	}
	got, err := program.Run(&ebpf.RunOptions{Data: frame, Context: full})
	if err != nil {
		return false, fmt.Errorf("run %s for endpoint %s: %w", name, strconv.FormatUint(uint64(id), 10), err)
	}
	return int32(got) == -1, nil
}

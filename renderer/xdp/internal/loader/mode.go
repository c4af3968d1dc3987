package loader

import "github.com/sluice-net/sluice/renderer/xdp/bpf"

// Mode selects where the classifier is attached.
type Mode string

// The modes. In all of them, traffic to a pod is judged at the egress of the node's end of its veth
// pair, which sees all of it.
const (
	ModeAuto    Mode = "auto"    // TCX at the node's end, or clsact where the kernel has no TCX
	ModeClsact  Mode = "clsact"  // filters at the node's end
	ModeXDP     Mode = "xdp"     // traffic from the pod by native XDP at the node's end
	ModeGeneric Mode = "generic" // the same by generic XDP
	ModeNone    Mode = "none"    // nowhere: the classifier only answers queries
)

// Modes are all modes.
var Modes = []Mode{ModeAuto, ModeClsact, ModeXDP, ModeGeneric, ModeNone}

// Programs returns the programs that the mode attaches to an interface, first the one for traffic
// to the pod.
func (m Mode) Programs() []string {
	switch m {
	case ModeNone:
		return nil
	case ModeXDP, ModeGeneric:
		return []string{bpf.SluiceProgToPod, bpf.SluiceProgXdpFromPod}
	case ModeAuto, ModeClsact:
	}
	return []string{bpf.SluiceProgToPod, bpf.SluiceProgFromPod}
}

// Runs reports whether the mode attaches programs; without, they run for queries only.
func (m Mode) Runs() bool { return m != ModeNone }

// tags reports whether packets are tagged at the pod's interface, which XDP cannot do.
func (m Mode) tags() bool { return m == ModeAuto || m == ModeClsact }

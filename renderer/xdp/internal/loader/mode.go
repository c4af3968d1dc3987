package loader

import "github.com/sluice-net/sluice/renderer/xdp/bpf"

// Mode says where the classifier is attached.
type Mode string

// The modes. Traffic to a pod is decided at the egress of the node's end of its pair, which
// sees all of it.
const (
	ModeAuto    Mode = "auto"    // TCX at the node's end, or clsact where the kernel has no TCX
	ModeClsact  Mode = "clsact"  // filters at the node's end
	ModeXDP     Mode = "xdp"     // traffic from the pod by XDP at the node's end
	ModeGeneric Mode = "generic" // the same, after the kernel has made a buffer of the packet
	ModeNone    Mode = "none"    // nowhere: the classifier can only be asked
)

// Modes are all modes.
var Modes = []Mode{ModeAuto, ModeClsact, ModeXDP, ModeGeneric, ModeNone}

// Programs are those that the mode attaches to an interface, first for traffic to the pod.
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

// Runs reports whether packets run programs at any time: else only when the classifier is asked.
func (m Mode) Runs() bool { return m != ModeNone }

// tags reports whether packets are tagged at the pod's interface: XDP has no place for that.
func (m Mode) tags() bool { return m == ModeAuto || m == ModeClsact }

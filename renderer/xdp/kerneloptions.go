package xdp

import (
	"log/slog"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// DefaultPinPath is where links and maps are pinned.
const DefaultPinPath = "/sys/fs/bpf/sluice"

// DefaultFlows is how many places the table of flows has: 8 MiB. Of 65 536 flows at once about 4
// are forgotten for others, of 131 072 one of 300: those that were not answered first.
const DefaultFlows = 1 << 18

// DefaultFlowCacheThreshold is as many flows as a cache of a processor's own has all of: about 1
// MiB of the table.
const DefaultFlowCacheThreshold = 1 << 13

// MaxFlows is as many places as the hash of the program can tell: 256 MiB.
const MaxFlows = 1 << 23

// MaxTunnelPorts is how many ports of tunnels a program knows.
const MaxTunnelPorts = loader.MaxTunnelPorts

// DefaultTunnelPorts are those of VXLAN and Geneve, as CNI plugins have them. That of WireGuard is
// not one: it is a port that kernels give to clients (net.ipv4.ip_local_port_range), whose answers
// would be dropped, and who has no key of a peer gets nothing out of such a tunnel.
var DefaultTunnelPorts = []uint16{4789, 8472, 6081}

// Mode says where the classifier is attached.
type Mode = loader.Mode

// The modes. Traffic to a pod is decided at the egress of the node's end of its pair, which
// sees all of it.
const (
	ModeAuto    = loader.ModeAuto    // TCX at the node's end, or clsact where the kernel has no TCX
	ModeClsact  = loader.ModeClsact  // filters at the node's end
	ModeXDP     = loader.ModeXDP     // traffic from the pod by XDP at the node's end
	ModeGeneric = loader.ModeGeneric // the same, after the kernel has made a buffer of the packet
	ModeNone    = loader.ModeNone    // nowhere: the classifier can only be asked
)

// Modes are all modes.
var Modes = loader.Modes

// KernelOptions say how the kernel enforces.
type KernelOptions struct {
	Log  *slog.Logger // nil discards
	Mode Mode
	// PinPath is a folder of a bpf file system. What is pinned there goes on when the process
	// ends, and is taken over by the next. Empty: nothing is pinned.
	PinPath string
	// Owner is remembered with the pins. Those of another node are taken over only with TakeOver.
	Owner    Owner
	TakeOver bool
	Infra    renderer.Infra

	AnySource   bool     // pods may send from addresses that are not theirs
	NonIP       bool     // isolated pods may exchange frames that are not IP
	PodTunnels  bool     // pods may send what nodes may take for a packet in a packet
	TunnelPorts []uint16 // of UDP, of such packets; MaxTunnelPorts at most; nil: DefaultTunnelPorts
	Flows       int      // places in the table of flows; zero: DefaultFlows
	// FlowCacheThreshold is how many flows that go on in a quarter of a second are so many that
	// traces of them are asked before the table of flows. Zero: DefaultFlowCacheThreshold;
	// negative: any.
	FlowCacheThreshold int

	PolicyMaps PolicyMaps
	// Uplinks are interfaces at which packets to pods are dropped early.
	Uplinks []uint32

	layouts *loader.Tracker // nil but in tests
}

// PolicyMaps say how policy maps are made. The zero value is right for almost everybody.
type PolicyMaps struct {
	// MaxBytes is how large each memory may be that programs read in place. Zero, and more than
	// that: what the kernel can: 512 MiB, or 4 MiB.
	MaxBytes int
	// Lines and Slots are what a policy map has at least.
	Lines, Slots int
	// KeepSpare keeps the policy map that was in force before, so that the next one need not be
	// loaded. It is for those that replace policy maps often.
	KeepSpare bool
}

// Owner is the agent that enforces with what is pinned in a folder. It is remembered with the pins.
type Owner = pins.Owner

// PinsError is why a folder is not used for pins, and what to do about it.
type PinsError = pins.Error

// PinsRemedy is what to do where CheckPins finds no bpf file system.
const PinsRemedy = pins.Remedy

// ErrNoPins is returned by Cleanup for a folder that is not there.
var ErrNoPins = pins.ErrNone

// CheckPins checks that a folder is in a bpf file system, or will be when it is made.
func CheckPins(path string) error { return pins.CheckPath(path) }

// CheckOwner checks that an agent of a node could use a folder for pins now. One that is not there
// yet is fine.
func CheckOwner(path, node string, takeOver bool) error { return pins.CheckOwner(path, node, takeOver) }

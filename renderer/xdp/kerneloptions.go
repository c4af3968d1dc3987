package xdp

import (
	"log/slog"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// DefaultPinPath is the folder in which links and maps are pinned.
const DefaultPinPath = "/sys/fs/bpf/sluice"

// DefaultFlows is the size of the connection table, in connections; it takes 8 MiB. Of 65 536
// concurrent connections the table evicts about 4, of 131 072 one in 300. It evicts unanswered
// connections first.
const DefaultFlows = 1 << 18

// DefaultFlowCacheThreshold is how many flows fit into the private cache of a processor: about 1
// MiB of the connection table.
const DefaultFlowCacheThreshold = 1 << 13

// MaxFlows is the largest connection table that the program's hash can index: 256 MiB.
const MaxFlows = 1 << 23

// MaxTunnelPorts is the largest number of tunnel ports.
const MaxTunnelPorts = loader.MaxTunnelPorts

// DefaultTunnelPorts are the ports of VXLAN and Geneve that CNI plugins use. The port of WireGuard
// is not one of them. It lies in the range of client ports (net.ipv4.ip_local_port_range), so the
// program would drop answers to clients. And a pod without the key of a peer cannot use such a
// tunnel.
var DefaultTunnelPorts = []uint16{4789, 8472, 6081}

// Mode selects where the classifier is attached.
type Mode = loader.Mode

// The modes. In all of them, traffic to a pod is judged at the egress of the node's end of its veth
// pair, which sees all of it.
const (
	ModeAuto    = loader.ModeAuto    // TCX at the node's end, or clsact where the kernel has no TCX
	ModeClsact  = loader.ModeClsact  // filters at the node's end
	ModeXDP     = loader.ModeXDP     // traffic from the pod by native XDP at the node's end
	ModeGeneric = loader.ModeGeneric // the same by generic XDP
	ModeNone    = loader.ModeNone    // nowhere: the classifier only answers queries
)

// Modes are all modes.
var Modes = loader.Modes

// KernelOptions configure the kernel dataplane.
type KernelOptions struct {
	Log  *slog.Logger // nil discards
	Mode Mode
	// PinPath is a folder in a bpf file system. What is pinned there outlives the process, and the
	// next process adopts it. Empty: nothing is pinned.
	PinPath string
	// Moved is called when the folder had to be made anew: what others pinned in it before ends
	// when it returns. It may be nil.
	Moved func() error
	// Blocked returns the interfaces that somebody else has blocked with programs pinned in PinPath: they
	// have no connection that was not judged. It may be nil.
	Blocked func() ([]uint32, error)
	// Owner is recorded with the pins. Pins of another node are adopted only with TakeOver.
	Owner    Owner
	TakeOver bool
	Infra    renderer.Infra

	AnySource   bool     // pods may send from any source address
	NonIP       bool     // isolated pods may exchange frames that are not IP
	PodTunnels  bool     // pods may send tunnel packets, which a node might decapsulate
	TunnelPorts []uint16 // UDP ports of tunnels; at most MaxTunnelPorts; nil: DefaultTunnelPorts
	Flows       int      // size of the connection table, in connections; zero: DefaultFlows
	// FlowCacheThreshold is the number of active flows per quarter of a second above which the
	// program looks into the recent-flow cache before the connection table. Zero:
	// DefaultFlowCacheThreshold; negative: always.
	FlowCacheThreshold int

	PolicyMaps PolicyMaps
	// Uplinks are interfaces at which packets to pods are dropped early.
	Uplinks []uint32

	layouts *loader.Tracker // nil but in tests
}

// PolicyMaps configure the policy maps. The zero value is right for almost all nodes.
type PolicyMaps struct {
	// MaxBytes limits the size of each map that programs read in place. Zero, or more than the
	// kernel supports, means the limit of the kernel: 512 MiB, or 4 MiB.
	MaxBytes int
	// Lines and Slots are the smallest size of a policy map.
	Lines, Slots int
	// KeepSpare keeps the previous policy map for the next replacement, which need not load
	// programs then. It is for users that replace policy maps often.
	KeepSpare bool
}

// Owner is the agent that owns a pin folder. It is recorded with the pins.
type Owner = pins.Owner

// PinsError says why a folder cannot be used for pins, and how to fix that.
type PinsError = pins.Error

// PinsRemedy is the remedy if CheckPins finds no bpf file system.
const PinsRemedy = pins.Remedy

// ErrNoPins is returned by Cleanup for a folder that does not exist.
var ErrNoPins = pins.ErrNone

// CheckPins checks that a folder is in a bpf file system, or will be once it is created.
func CheckPins(path string) error { return pins.CheckPath(path) }

// CheckOwner checks that an agent of a node could own a pin folder now. A folder that does not
// exist yet is fine.
func CheckOwner(path, node string, takeOver bool) error { return pins.CheckOwner(path, node, takeOver) }

// Pinned describes a file in a folder for pins.
type Pinned = pins.Pinned

// ListPins describes what is pinned in a folder, without its lock and without a change: also while
// another process owns the folder.
func ListPins(path string) ([]Pinned, error) { return pins.List(path) }

package acl

import (
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
)

// ErrTooLarge is returned when a table exceeds the limits of VPP. The pods keep their rules. It is
// a renderer.Refusal, unless other owners may free resources at any moment: then it is retried.
var ErrTooLarge = entries.ErrTooLarge

// The reasons that are reported for rules that are not enforced exactly.
const (
	reasonSCTP   = "this vswitch does not match ports of SCTP"
	reasonACLs   = "an interface would need too many ACLs"
	reasonTable  = "the rules of a pod, with their sets expanded, are too many entries"
	reasonMemory = "the vswitch has not enough memory for the rules of a pod, with their sets expanded"
)

// embeddedVersion is the version prefix of the embedded vswitch, which matches SCTP ports.
// Everything else is treated as VPP, because the API does not report it. VPP parses only ports of
// TCP, UDP and ICMP, and takes every SCTP port for 0. There, a rule that permits some SCTP ports
// must permit none, and a rule that denies some must deny all.
const embeddedVersion = "sluice-vswitch "

// isEmbedded reports whether a version is that of the embedded vswitch.
func isEmbedded(version string) bool { return strings.HasPrefix(version, embeddedVersion) }

func namesSCTPPort(r *api.ContivRule) bool {
	return r.Protocol == api.SCTP && (!r.SrcPort.IsAny() || !r.DstPort.IsAny())
}

// refusals are the tables that do not fit.
type refusals struct {
	errs     []error
	oversize []renderer.Unenforced    // rules of the refused tables
	refused  map[renderer.Digest]bool // tables
}

// add records that the rules of a table do not fit.
func (f *refusals) add(err error, reason string, origins [][]api.Origin, pods int) {
	f.errs = append(f.errs, err)
	seen := map[api.Origin]bool{}
	for _, of := range origins {
		for _, o := range of {
			if seen[o] {
				continue
			}
			seen[o] = true
			f.oversize = append(f.oversize, renderer.Unenforced{
				Origin: o, Class: api.ClassLimit, Reason: reason, Effect: renderer.EffectPrevious, Pods: pods,
			})
		}
	}
}

// bounds limit the sizes of ACLs.
type bounds struct {
	layout.Sizes
	guard expand.GuardSizes
}

func defaultBounds() bounds {
	return bounds{Sizes: layout.DefaultSizes(), guard: expand.GuardSizes{Entries: 256, Peers: 1024, Blocks: 128}}
}

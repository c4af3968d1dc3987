package acl

import (
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// ErrTooLarge is returned when a table is larger than VPP can be asked to hold. The pods keep the
// rules they have. It is a renderer.Refusal, unless others may make room at any moment: then the
// commit is tried again.
var ErrTooLarge = entries.ErrTooLarge

// Errors of the connection to the vswitch.
var (
	// ErrNotConnected is returned while there is no connection to the vswitch.
	ErrNotConnected = vpp.ErrNotConnected
	// ErrIncompatible is returned when the vswitch does not know a message, for
	// example because the acl plugin is not loaded or its version is another one.
	ErrIncompatible = vpp.ErrIncompatible
)

// The reasons that are told of rules that are not enforced as they are.
const (
	reasonSCTP  = "this vswitch does not match ports of SCTP"
	reasonACLs  = "an interface would need too many ACLs"
	reasonTable = "the rules of a pod, with their sets expanded, are too many entries"

	reasonMemory = "the vswitch has not enough memory for the rules of a pod, with their sets expanded"
)

// embeddedVersion is how the version of the embedded vswitch begins, which matches
// ports of SCTP. VPP parses those of TCP, UDP and ICMP only, so a rule with another
// port than any never matches there. What calls itself otherwise is taken for VPP:
// its API does not tell. There, what permits some ports of SCTP must permit none, for
// VPP takes every port for 0; and what denies some must deny all.
const embeddedVersion = "sluice-vswitch "

// isEmbedded says whether a version is that of the embedded vswitch.
func isEmbedded(version string) bool { return strings.HasPrefix(version, embeddedVersion) }

func namesSCTPPort(r api.ContivRule) bool {
	return r.Protocol == api.SCTP && (!r.SrcPort.IsAny() || !r.DstPort.IsAny())
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// refuse notes that the rules of one table do not fit.
func (w *wanted) refuse(err error, reason string, origins [][]api.Origin, pods int) {
	w.refused = append(w.refused, err)
	seen := map[api.Origin]bool{}
	for _, of := range origins {
		for _, o := range of {
			if seen[o] {
				continue
			}
			seen[o] = true
			w.oversize = append(w.oversize, renderer.Unenforced{
				Origin: o, Class: api.ClassLimit, Reason: reason, Effect: renderer.EffectPrevious, Pods: pods,
			})
		}
	}
}

// refuseInterface notes that the table of an interface does not fit.
func (w *wanted) refuseInterface(n *mirror.Interface, err error) {
	in, out := w.who.senders[n.Index], w.who.tables[n.Index]
	switch {
	case in != nil && out != nil:
		w.refuse(err, reasonACLs, slices.Concat(in.Origins, out.Origins), 1)
	case in != nil:
		w.refuse(err, reasonACLs, in.Origins, 1)
	case out != nil:
		w.refuse(err, reasonACLs, out.Origins, 1)
	case w.layout.Global != nil:
		w.refuse(err, reasonACLs, w.layout.Global.Origins, 0)
	default:
		w.refused = append(w.refused, err)
	}
}

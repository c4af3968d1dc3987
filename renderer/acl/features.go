package acl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// ErrLayout is returned by Commit when the vswitch translates addresses so that ACLs do
// not see those that rules name: sources before the ACLs of uplinks, or with Split
// destinations behind those of pods' interfaces. Everything else was installed.
var ErrLayout = errors.New("the vswitch translates addresses that policy must see")

// features are the nodes of the vswitch's feature arcs: those that there are, in the
// order in which packets meet them, or those that are on at one interface.
type features map[string][]string

// arc is a way of packets through features, and the ACLs on it.
type arc struct{ name, acl string }

// The arcs of what enters and of what leaves, by family.
var (
	inputArcs  = []arc{{"ip4-unicast", "acl-plugin-in-ip4-fa"}, {"ip6-unicast", "acl-plugin-in-ip6-fa"}}
	outputArcs = []arc{{"ip4-output", "acl-plugin-out-ip4-fa"}, {"ip6-output", "acl-plugin-out-ip6-fa"}}
)

// parseFeatures reads what "show features verbose" and "show interface features"
// print: a line "name:" or "[ 1] name:" for an arc, "name" or "[ 2]: name" for a node.
func parseFeatures(text string) features {
	out, current := features{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			_, line, _ = strings.Cut(line, "]")
			line = strings.TrimSpace(strings.TrimPrefix(line, ":"))
		}
		name, isArc := strings.CutSuffix(line, ":")
		switch {
		case name == "" || strings.ContainsAny(name, " \t"): // headlines, "none configured"
		case isArc:
			current = name
			out[current] = nil
		case current != "":
			out[current] = append(out[current], name)
		}
	}
	return out
}

// translatesSource says whether a node may give packets another source. Nodes that
// translate the destinations of services are none: policy is for what they lead to,
// and all of them stand ahead of the outputs.
func translatesSource(node string) bool {
	switch {
	case strings.Contains(node, "in2out"), strings.Contains(node, "snat"), strings.HasPrefix(node, "pnat-"):
		return true
	case strings.HasPrefix(node, "nat44"): // sorts packets into both directions
		return strings.Contains(node, "classify")
	}
	return false
}

// translatesDestination says whether a node may give packets another destination.
func translatesDestination(node string) bool {
	return strings.Contains(node, "out2in") || strings.HasPrefix(node, "pnat-") || strings.HasPrefix(node, "nat44") && strings.Contains(node, "classify")
}

// translators returns whether there is any node of a kind on the way of packets.
func (f features) translators(kind func(node string) bool) bool {
	return slices.ContainsFunc(slices.Concat(inputArcs, outputArcs), func(a arc) bool { return slices.ContainsFunc(f[a.name], kind) })
}

// behind returns the first node of an interface that translates destinations behind the
// ACLs on an arc; order is that of all nodes. It is empty when there is none.
func (f features) behind(a arc, order features) string {
	acl := slices.Index(order[a.name], a.acl)
	for _, node := range f[a.name] {
		if translatesDestination(node) && slices.Index(order[a.name], node) > acl {
			return node
		}
	}
	return ""
}

// aheadOf returns the first node of an interface that translates sources ahead of the
// ACLs on an arc; order is that of all nodes. It is empty when there is none.
func (f features) aheadOf(a arc, order features) string {
	acl := slices.Index(order[a.name], a.acl)
	for _, node := range f[a.name] {
		if translatesSource(node) && (acl < 0 || slices.Index(order[a.name], node) < acl) {
			return node
		}
	}
	return ""
}

// anywhere returns the first node of an interface that translates sources on an arc.
func (f features) anywhere(a arc) string {
	if i := slices.IndexFunc(f[a.name], translatesSource); i >= 0 {
		return f[a.name][i]
	}
	return ""
}

// checkLayout finds the interfaces where tables cannot do their work. The global table
// names pods by their addresses and is asked about what leaves uplinks: so a pod's
// address must not be another one by then, neither since the pod's interface nor at the
// uplink itself. With Split, tables name whom a pod sends to and are asked as that
// enters: so the destination must not become another one later. What pods get is judged
// by local tables, which translation does not disturb.
func (w *wanted) checkLayout(ctx context.Context) error {
	r := w.r
	r.blind = nil
	kind, asks := translatesSource, w.layout.Global != nil
	if r.options.Orientation == Split {
		kind, asks = translatesDestination, len(w.senders) > 0
	}
	if !asks {
		return nil
	}
	if r.order == nil { // what nodes there are is settled when the vswitch starts
		order, err := r.link.features(ctx, "show features verbose")
		if err != nil {
			return err
		}
		r.order = order
	}
	if !r.order.translators(kind) {
		return nil
	}
	for _, n := range w.m.ifs {
		if !w.uplinks[n.index] && len(w.owned[n.index]) == 0 {
			continue
		}
		on, err := r.link.features(ctx, "show interface features "+n.name)
		if err != nil {
			return err
		}
		if node := w.blinds(n, on, r.order); node != "" {
			r.blind = append(r.blind, n.name+" by "+node)
		}
	}
	return nil
}

// blinds returns the node of an interface that hides addresses from a table.
func (w *wanted) blinds(n *netif, on, order features) string {
	if w.r.options.Orientation == Split {
		if w.senders[n.index] == nil {
			return ""
		}
		for _, a := range inputArcs {
			if node := on.behind(a, order); node != "" {
				return node
			}
		}
		return ""
	}
	if w.uplinks[n.index] {
		for _, a := range outputArcs {
			if node := on.aheadOf(a, order); node != "" {
				return node
			}
		}
		return ""
	}
	for _, a := range inputArcs {
		if node := on.anywhere(a); node != "" {
			return node
		}
	}
	return ""
}

// features asks for features. A vswitch that does not know the command has none that matter.
func (l *link) features(ctx context.Context, command string) (features, error) {
	out, err := l.ask(ctx, command)
	return parseFeatures(out), err
}

// ask runs a command that reads. The answer is empty from a vswitch without a command line, and
// from one that does not know the command.
func (l *link) ask(ctx context.Context, command string) (string, error) {
	out, err := l.CLI(ctx, command)
	var retval govpp.VPPApiError
	if errors.As(err, &retval) || errors.Is(err, vpp.ErrNoCLI) {
		return "", nil
	}
	return out, err
}

// layoutError says what is wrong, and what can be done about it.
func (r *Renderer) layoutError() error {
	if r.options.Orientation == Split {
		return fmt.Errorf("%w: destinations, at %s; rules for what these pods send cannot match there. Use orientation outputs", ErrLayout, renderer.Summary(r.blind))
	}
	return fmt.Errorf("%w: sources, at %s; rules of pods for what leaves the node cannot match there. Translate behind the ACLs of the uplink "+
		"(nat44-ei with output-feature), or outside of this vswitch, or use orientation split, which keeps established flows", ErrLayout, renderer.Summary(r.blind))
}

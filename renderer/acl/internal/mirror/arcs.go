package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Features are the nodes of the vswitch's feature arcs: those that there are, in the
// order in which packets meet them, or those that are on at one interface.
type Features map[string][]string

// arc is a way of packets through features, and the ACLs on it.
type arc struct{ name, acl string }

// The arcs of what enters and of what leaves, by family.
var (
	InputArcs  = []arc{{"ip4-unicast", "acl-plugin-in-ip4-fa"}, {"ip6-unicast", "acl-plugin-in-ip6-fa"}}
	OutputArcs = []arc{{"ip4-output", "acl-plugin-out-ip4-fa"}, {"ip6-output", "acl-plugin-out-ip6-fa"}}
)

// parseFeatures reads what "show features verbose" and "show interface features"
// print: a line "name:" or "[ 1] name:" for an arc, "name" or "[ 2]: name" for a node.
func parseFeatures(text string) Features {
	out, current := Features{}, ""
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

// TranslatesSource reports whether a node may give packets another source. Nodes that
// translate the destinations of services are none: policy is for what they lead to,
// and all of them stand ahead of the outputs.
func TranslatesSource(node string) bool {
	switch {
	case strings.Contains(node, "in2out"), strings.Contains(node, "snat"), strings.HasPrefix(node, "pnat-"):
		return true
	case strings.HasPrefix(node, "nat44"): // sorts packets into both directions
		return strings.Contains(node, "classify")
	}
	return false
}

// TranslatesDestination reports whether a node may give packets another destination.
func TranslatesDestination(node string) bool {
	return strings.Contains(node, "out2in") || strings.HasPrefix(node, "pnat-") || strings.HasPrefix(node, "nat44") && strings.Contains(node, "classify")
}

// Translators returns whether there is any node of a kind on the way of packets.
func (f Features) Translators(kind func(node string) bool) bool {
	return slices.ContainsFunc(slices.Concat(InputArcs, OutputArcs), func(a arc) bool { return slices.ContainsFunc(f[a.name], kind) })
}

// Behind returns the first node of an interface that translates destinations behind the
// ACLs on an arc; order is that of all nodes. It is empty when there is none.
func (f Features) Behind(a arc, order Features) string {
	acl := slices.Index(order[a.name], a.acl)
	for _, node := range f[a.name] {
		if TranslatesDestination(node) && slices.Index(order[a.name], node) > acl {
			return node
		}
	}
	return ""
}

// AheadOf returns the first node of an interface that translates sources ahead of the
// ACLs on an arc; order is that of all nodes. It is empty when there is none.
func (f Features) AheadOf(a arc, order Features) string {
	acl := slices.Index(order[a.name], a.acl)
	for _, node := range f[a.name] {
		if TranslatesSource(node) && (acl < 0 || slices.Index(order[a.name], node) < acl) {
			return node
		}
	}
	return ""
}

// Anywhere returns the first node of an interface that translates sources on an arc.
func (f Features) Anywhere(a arc) string {
	if i := slices.IndexFunc(f[a.name], TranslatesSource); i >= 0 {
		return f[a.name][i]
	}
	return ""
}

// Features asks for features. A vswitch that does not know the command has none that matter.
func (l *Link) Features(ctx context.Context, command string) (Features, error) {
	out, err := l.Ask(ctx, command)
	return parseFeatures(out), err
}

// Ask runs a command that reads. The answer is empty from a vswitch without a command line, and
// from one that does not know the command.
func (l *Link) Ask(ctx context.Context, command string) (string, error) {
	out, err := l.CLI(ctx, command)
	var retval govpp.VPPApiError
	if errors.As(err, &retval) || errors.Is(err, vpp.ErrNoCLI) {
		return "", nil
	}
	return out, err
}

// translations are the commands that list which addresses VPP translates to others, and what stands
// in every line of it (plugins/cnat/cnat_translation.c, plugins/nat/nat44-ed and nat44-ei).
var translations = map[string]string{
	"show cnat translation": "->", "show nat44 static mappings": "external", "show nat44 ei static mappings": "external",
}

// Translates returns the command that lists which addresses VPP translates, empty when it
// translates none.
func (l *Link) Translates(ctx context.Context) (command string, err error) {
	for _, command := range slices.Sorted(maps.Keys(translations)) {
		out, err := l.Ask(ctx, command)
		if err != nil {
			return "", err
		}
		if strings.Contains(out, translations[command]) {
			return command, nil
		}
	}
	return "", nil
}

// AgeOf reads how long a vswitch runs from "Time now 12.345678, Sat, ...".
func AgeOf(clock string) (time.Duration, bool) {
	_, rest, ok := strings.Cut(clock, "Time now ")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(strings.TrimSpace(rest), ",")
	seconds, err := strconv.ParseFloat(number, 64)
	const century = 100 * 365 * 24 * 3600
	if err != nil || !(seconds >= 0 && seconds < century) { // also not a number
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

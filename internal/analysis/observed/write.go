package observed

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// Write writes the policies as YAML, behind comments that say what they do.
func (s *Suggestion) Write(w *term.Writer) {
	w.Printf("# Policies for namespace %s, from %s that were observed.\n", s.Namespace, term.Count(s.Flows, "flow"))
	if c := s.Change; c != nil {
		w.Printf("# They close %d of %s of workloads, narrow %d, and open %d.\n", c.Closed, term.Count(c.Pairs, "pair"), c.Narrowed, c.Opened)
		s.writeChanges(w)
	}
	for _, d := range s.Denied {
		w.Printf("# WARNING: %s stays denied: %s\n", d.Flow, api.OriginTexts(d.By))
	}
	for _, text := range s.Left {
		w.Printf("# WARNING: %s\n", text)
	}
	for _, name := range s.Updated {
		w.Printf("# note: %s is there already, and changes\n", name)
	}
	for _, name := range s.Replaced {
		w.Printf("# delete: kubectl delete networkpolicy -n %s %s\n", s.Namespace, name)
	}
	for _, text := range s.Notes {
		w.Printf("# note: %s\n", text)
	}
	s.writePolicies(w)
}

// mostChanges bounds how many pairs of each kind are named for people.
const mostChanges = 10

func (s *Suggestion) writeChanges(w *term.Writer) {
	for _, change := range []string{"opened", "narrowed", "closed"} {
		n := 0
		for _, p := range s.Change.Changes {
			if p.Change != change {
				continue
			}
			if n++; n <= mostChanges {
				w.Printf("#   %-8s  %s -> %s\n", change, p.From, p.To)
			}
		}
		if n > mostChanges {
			w.Printf("#   %-8s  %d more; -o json has all\n", change, n-mostChanges)
		}
	}
}

func (s *Suggestion) writePolicies(w *term.Writer) {
	for _, p := range s.Policies {
		p.write(w)
	}
}

func (p Policy) write(w *term.Writer) {
	w.Printf("---\n")
	if p.workload != nil {
		w.Printf("# %s, %s\n", p.workload, term.Count(len(p.workload.pods), "pod"))
	}
	for _, n := range p.notes {
		w.Printf("# %s\n", n)
	}
	w.Printf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: %s\n  namespace: %s\n", scalar(p.Name), scalar(p.Namespace))
	if mode := p.Annotations[kinds.ModeAnnotation]; mode != "" {
		w.Printf("  annotations: {%s: %s}\n", scalar(kinds.ModeAnnotation), scalar(mode))
	}
	w.Printf("spec:\n  podSelector: %s\n  policyTypes: [Ingress, Egress]\n", selectorYAML(&p.Spec.PodSelector))
	for i, r := range p.Spec.Ingress {
		if i == 0 {
			w.Printf("  ingress:\n")
		}
		p.writeRule(w, "from", r.From, r.Ports, p.peers[api.Ingress][i])
	}
	for i, r := range p.Spec.Egress {
		if i == 0 {
			w.Printf("  egress:\n")
		}
		p.writeRule(w, "to", r.To, r.Ports, p.peers[api.Egress][i])
	}
}

func (p Policy) writeRule(w *term.Writer, list string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, about []seen) {
	w.Printf("    - %s:\n", list)
	for i, peer := range peers {
		w.Printf("        # %s\n", about[i])
		switch {
		case peer.IPBlock != nil:
			w.Printf("        - ipBlock: {cidr: %s}\n", scalar(peer.IPBlock.CIDR))
		case peer.NamespaceSelector != nil:
			w.Printf("        - namespaceSelector: %s\n          podSelector: %s\n", selectorYAML(peer.NamespaceSelector), selectorYAML(peer.PodSelector))
		default:
			w.Printf("        - podSelector: %s\n", selectorYAML(peer.PodSelector))
		}
	}
	for i, port := range ports {
		if i == 0 {
			w.Printf("      ports:\n")
		}
		end := ""
		if port.EndPort != nil {
			end = fmt.Sprintf(", endPort: %d", *port.EndPort)
		}
		w.Printf("        - {protocol: %s, port: %d%s}\n", string(*port.Protocol), port.Port.IntValue(), end)
	}
}

// String says what was observed: "observed 12 times, last 2026-05-04 14:02 UTC, from shop/web-0".
func (s seen) String() string {
	text := "observed once"
	if s.packets != 1 {
		text = fmt.Sprintf("observed %d times", s.packets)
	}
	if !s.last.IsZero() {
		text += ", last " + s.last.UTC().Format("2006-01-02 15:04") + " UTC"
	}
	if s.addrs > 1 {
		text += fmt.Sprintf(", %d addresses", s.addrs)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.from)), func(n string) bool { return n == "" })
	if len(names) > 0 {
		text += ", " + few(names, 2)
	}
	return text
}

// plain is what needs no quotes in YAML and has no other meaning there.
var plain = regexp.MustCompile(`^[a-z]+([-./][a-z0-9]+)*$`)

// words are plain, but of another type than text in YAML.
var words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// scalar writes a text as YAML.
func scalar(text string) term.Text {
	if plain.MatchString(text) && !slices.Contains(words, text) {
		return term.Text(text)
	}
	return term.Text(strconv.QuoteToASCII(text)) // the escapes of Go are among those of YAML
}

// selectorYAML writes a selector on one line.
func selectorYAML(s *metav1.LabelSelector) term.Text {
	var parts []string
	for _, key := range keys(s.MatchLabels) {
		parts = append(parts, fmt.Sprintf("%s: %s", scalar(key), scalar(s.MatchLabels[key])))
	}
	var out []string
	if len(parts) > 0 {
		out = append(out, "matchLabels: {"+strings.Join(parts, ", ")+"}")
	}
	parts = nil
	for _, r := range s.MatchExpressions {
		parts = append(parts, fmt.Sprintf("{key: %s, operator: %s}", scalar(r.Key), r.Operator))
	}
	if len(parts) > 0 {
		out = append(out, "matchExpressions: ["+strings.Join(parts, ", ")+"]")
	}
	return term.Text("{" + strings.Join(out, ", ") + "}")
}

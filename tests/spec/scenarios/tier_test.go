package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// spec is the value of spec in a manifest of an admin policy, or a part of it. Both versions of the
// API have nearly the same one, but not in Go.
type spec = map[string]any

// tierKind is a kind of administrators' policies. Files name it as kubectl does.
type tierKind struct {
	empty    func() metav1.Object
	defaults string            // the name of a policy that names none
	words    []string          // fields of the spec that are in the command
	ports    string            // the field of a rule that holds ports
	port     func(portOf) spec // an element of it
}

var tierKinds = map[string]tierKind{
	"anp": {empty: func() metav1.Object { return &v1alpha1.AdminNetworkPolicy{} },
		words: []string{"priority"}, ports: "ports", port: portOf.alpha1},
	"banp": {empty: func() metav1.Object { return &v1alpha1.BaselineAdminNetworkPolicy{} },
		defaults: "default", ports: "ports", port: portOf.alpha1},
	"cnp": {empty: func() metav1.Object { return &v1alpha2.ClusterNetworkPolicy{} },
		words: []string{"tier", "priority"}, ports: "protocols", port: portOf.alpha2},
}

// parseTier reads an admin policy: "cnp guard tier=Admin priority=10", with its spec as YAML or in
// the short form, whose first word is for. With YAML the line may have the words of the command
// instead.
func parseTier(l line, text string) (metav1.Object, error) {
	kind, name := tierKinds[l.verb], tierKinds[l.verb].defaults
	if name == "" || len(l.args) > 0 {
		var err error
		if name, err = l.take("a name"); err != nil {
			return nil, err
		}
	}
	var s spec
	var err error
	switch isShort := strings.HasPrefix(text, "for "); {
	case strings.TrimSpace(text) == "":
		err = errors.New("want a spec")
	case isShort:
		s, err = kind.shortSpec(text)
	default:
		err = yaml.UnmarshalStrict([]byte(text), &s)
	}
	if err == nil {
		err = kind.addWords(s, l)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", l.verb, name, err)
	}
	return kind.object(name, s)
}

// addWords adds the fields in the command.
func (k tierKind) addWords(s spec, l line) error {
	for _, a := range l.args {
		value, err := one(a)
		if !slices.Contains(k.words, a.Key) || err != nil {
			return fmt.Errorf("%q is not understood", a.String())
		}
		if _, twice := s[a.Key]; twice {
			return fmt.Errorf("%s is there twice", a.Key)
		}
		s[a.Key] = json.RawMessage(value)
		if a.Key == "tier" {
			s[a.Key] = value
		}
	}
	for _, w := range k.words {
		if _, has := s[w]; !has {
			return fmt.Errorf("want %s=", w)
		}
	}
	return nil
}

func (k tierKind) object(name string, s spec) (metav1.Object, error) {
	text, err := json.Marshal(spec{"metadata": spec{"name": name}, "spec": s})
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	out := k.empty()
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return out, nil
}

// shortSpec reads
//
//	for namespaces(team=a) pods(app=web)
//	ingress accept from pods(role=fe) or namespaces(team=b) on 80 53/UDP http
//	egress deny to nodes(zone=a) or 10.0.0.0/8, 8.8.8.8/32
//
// A policy may have no rules.
func (k tierKind) shortSpec(text string) (spec, error) {
	first, rest, _ := strings.Cut(text, "\n")
	subject, err := podsSomewhere(strings.TrimSpace(strings.TrimPrefix(first, "for ")))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", first, err)
	}
	rules := map[string][]spec{}
	for l := range strings.Lines(rest) {
		l, _, _ = strings.Cut(l, " #")
		direction, rule, _ := strings.Cut(strings.TrimSpace(l), " ")
		list, known := map[string]string{"ingress": "from", "egress": "to"}[direction]
		switch {
		case direction == "":
			continue
		case !known:
			return nil, fmt.Errorf("%q is none of ingress, egress", direction)
		}
		r, err := k.rule(rule, list)
		if err != nil {
			return nil, err
		}
		rules[direction] = append(rules[direction], r)
	}
	return spec{"subject": subject, "ingress": rules["ingress"], "egress": rules["egress"]}, nil
}

// tierActions are the actions of both versions, whether a kind has them or not.
var tierActions = map[string]string{"accept": "Accept", "allow": "Allow", "deny": "Deny", "pass": "Pass"}

// rule reads "deny from PEERS" and "deny from PEERS on PORTS".
func (k tierKind) rule(text, list string) (spec, error) {
	peerText, portText, hasPorts := strings.Cut(text, " on ")
	verb, peers, _ := strings.Cut(peerText, " "+list+" ")
	action, known := tierActions[verb]
	if !known || peers == "" || hasPorts && strings.TrimSpace(portText) == "" {
		return nil, fmt.Errorf("%q: want accept, allow, deny or pass, then %s PEERS, then perhaps on PORTS", text, list)
	}
	r := spec{"action": action}
	var all []spec
	for one := range strings.SplitSeq(peers, " or ") {
		p, err := tierPeer(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	r[list] = all
	if !hasPorts {
		return r, nil
	}
	var ports []spec
	for one := range strings.FieldsSeq(portText) {
		p, err := parsePortOf(one)
		if err != nil {
			return nil, err
		}
		ports = append(ports, k.port(p))
	}
	r[k.ports] = ports
	return r, nil
}

// tierPeer reads pods as subjects have them, "nodes(zone=a)", "domains(example.org)"
// and "10.0.0.0/8, fd00::/8".
func tierPeer(text string) (spec, error) {
	if inside, ok := within(text, "nodes"); ok {
		sel, err := shortSelector(inside)
		return spec{"nodes": sel}, err
	}
	if inside, ok := within(text, "domains"); ok {
		return spec{"domainNames": commas(inside)}, nil
	}
	if networks := commas(text); allPrefixes(networks) {
		return spec{"networks": networks}, nil
	}
	p, err := podsSomewhere(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a peer, and no nodes(SELECTOR), domains(NAMES), prefixes: %w", text, err)
	}
	return p, nil
}

// podsSomewhere reads "namespaces(team=a)", "pods(app=web)" and both together. Without
// namespaces it means those in all of them.
func podsSomewhere(text string) (spec, error) {
	namespaces, pods, err := selectors(text)
	switch {
	case err != nil:
		return nil, err
	case pods == nil:
		return spec{"namespaces": namespaces}, nil
	case namespaces == nil:
		namespaces = &metav1.LabelSelector{}
	}
	return spec{"pods": spec{"namespaceSelector": namespaces, "podSelector": pods}}, nil
}

// portOf is a port of a rule: some numbers of a protocol, or a name.
type portOf struct {
	protocol    corev1.Protocol
	first, last int32
	name        string
}

// parsePortOf reads a port as policies of namespaces have it, but for those without a
// number; names have no protocol.
func parsePortOf(text string) (portOf, error) {
	p, err := shortPort(text)
	out := portOf{protocol: corev1.ProtocolTCP}
	if p.Protocol != nil {
		out.protocol = *p.Protocol
	}
	switch {
	case err != nil:
		return out, err
	case !slices.Contains([]corev1.Protocol{"TCP", "UDP", "SCTP"}, out.protocol):
		return out, fmt.Errorf("%q: protocol is none of TCP, UDP, SCTP", text)
	case p.Port == nil:
		return out, fmt.Errorf("%q: want numbers, 1-65535 for all", text)
	case p.Port.Type == intstr.String && p.Protocol != nil:
		return out, fmt.Errorf("%q: a port name has no protocol here", text)
	case p.Port.Type == intstr.String:
		return portOf{name: p.Port.StrVal}, nil
	}
	out.first = p.Port.IntVal
	if p.EndPort != nil {
		out.last = *p.EndPort
	}
	return out, nil
}

// alpha1 is the port in v1alpha1.
func (p portOf) alpha1() spec {
	switch {
	case p.name != "":
		return spec{"namedPort": p.name}
	case p.last != 0:
		return spec{"portRange": spec{"protocol": p.protocol, "start": p.first, "end": p.last}}
	}
	return spec{"portNumber": spec{"protocol": p.protocol, "port": p.first}}
}

// alpha2 is the port in v1alpha2.
func (p portOf) alpha2() spec {
	port := spec{"number": p.first}
	switch {
	case p.name != "":
		return spec{"destinationNamedPort": p.name}
	case p.last != 0:
		port = spec{"range": spec{"start": p.first, "end": p.last}}
	}
	return spec{strings.ToLower(string(p.protocol)): spec{"destinationPort": port}}
}

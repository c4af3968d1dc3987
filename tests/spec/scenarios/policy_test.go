package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api"
)

// parsePolicy reads the spec of a NetworkPolicy: as YAML, or in the short form, whose
// first word is for.
func parsePolicy(name, text string) (*networkingv1.NetworkPolicy, error) {
	id, err := api.ParsePodID(name)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}}
	switch {
	case strings.TrimSpace(text) == "":
		err = errors.New("want a spec")
	case strings.HasPrefix(text, "for "):
		err = shortSpec(&np.Spec, text)
	default:
		err = yaml.UnmarshalStrict([]byte(text), &np.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return np, nil
}

// shortSpec reads
//
//	for app=web
//	ingress from pods(role=fe) or 10.0.0.0/8 except 10.1.0.0/16 on 80 53/UDP
//	egress none
//
// The policy has the types of which there are lines, and a rule for each line that
// does not say none.
func shortSpec(spec *networkingv1.NetworkPolicySpec, text string) error {
	first, rest, _ := strings.Cut(text, "\n")
	subject, err := shortSelector(strings.TrimPrefix(first, "for "))
	if err != nil {
		return err
	}
	spec.PodSelector = *subject
	for l := range strings.Lines(rest) {
		l, _, _ = strings.Cut(l, " #")
		direction, rule, _ := strings.Cut(strings.TrimSpace(l), " ")
		switch direction {
		case "":
		case "ingress":
			err = shortIngress(spec, rule)
		case "egress":
			err = shortEgress(spec, rule)
		default:
			err = fmt.Errorf("%q is none of ingress, egress", direction)
		}
		if err != nil {
			return err
		}
	}
	if spec.PolicyTypes == nil {
		return errors.New("want lines that begin with ingress or egress")
	}
	return nil
}

func shortIngress(spec *networkingv1.NetworkPolicySpec, text string) error {
	peers, ports, none, err := shortRule(text, "from ")
	addType(spec, networkingv1.PolicyTypeIngress)
	if !none {
		spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
	}
	return err
}

func shortEgress(spec *networkingv1.NetworkPolicySpec, text string) error {
	peers, ports, none, err := shortRule(text, "to ")
	addType(spec, networkingv1.PolicyTypeEgress)
	if !none {
		spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
	}
	return err
}

func addType(spec *networkingv1.NetworkPolicySpec, t networkingv1.PolicyType) {
	if !slices.Contains(spec.PolicyTypes, t) {
		spec.PolicyTypes = append(spec.PolicyTypes, t)
	}
}

// shortRule reads "none", "anything", "from PEERS", "on PORTS" and "from PEERS on
// PORTS".
func shortRule(text, preposition string) (peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, none bool, err error) {
	switch text {
	case "none":
		return nil, nil, true, nil
	case "anything":
		return nil, nil, false, nil
	}
	peerText, portText, hasPorts := strings.Cut(" "+text, " on ")
	if peerText = strings.TrimSpace(peerText); peerText != "" {
		list, ok := strings.CutPrefix(peerText, preposition)
		if !ok {
			return nil, nil, false, fmt.Errorf("%q: want none, anything, %sPEERS, on PORTS", text, preposition)
		}
		for one := range strings.SplitSeq(list, " or ") {
			p, err := shortPeer(strings.TrimSpace(one))
			if err != nil {
				return nil, nil, false, err
			}
			peers = append(peers, p)
		}
	}
	if hasPorts && strings.TrimSpace(portText) == "" || text == "" {
		return nil, nil, false, fmt.Errorf("%q: the rule is not complete", text)
	}
	for one := range strings.FieldsSeq(portText) {
		p, err := shortPort(one)
		if err != nil {
			return nil, nil, false, err
		}
		ports = append(ports, p)
	}
	return peers, ports, false, nil
}

var selectorPeer = regexp.MustCompile(`^(?:namespaces\((.*?)\)(?:$| ))?(?:pods\((.*)\))?$`)

// shortPeer reads "pods(app=web)", "namespaces(team=a)", "namespaces(team=a)
// pods(app=web)" and "10.0.0.0/8 except 10.1.0.0/16, 10.2.0.0/16".
func shortPeer(text string) (networkingv1.NetworkPolicyPeer, error) {
	var p networkingv1.NetworkPolicyPeer
	cidr, excepts, _ := strings.Cut(text, " except ")
	if _, err := netip.ParsePrefix(cidr); err == nil {
		p.IPBlock = &networkingv1.IPBlock{CIDR: cidr}
		if excepts != "" {
			p.IPBlock.Except = commas(excepts)
		}
		return p, nil
	}
	var err error
	if p.NamespaceSelector, p.PodSelector, err = selectors(text); err != nil {
		return p, fmt.Errorf("%q is not a peer, and no prefix: %w", text, err)
	}
	return p, nil
}

// selectors reads "pods(app=web)", "namespaces(team=a)" and "namespaces(team=a)
// pods(app=web)".
func selectors(text string) (namespaces, pods *metav1.LabelSelector, err error) {
	parts := selectorPeer.FindStringSubmatch(text)
	if parts == nil || text == "" {
		return nil, nil, errors.New("want pods(SELECTOR), namespaces(SELECTOR) or both")
	}
	if strings.HasPrefix(text, "namespaces(") {
		if namespaces, err = shortSelector(parts[1]); err != nil {
			return nil, nil, err
		}
	}
	if strings.HasSuffix(text, "pods("+parts[2]+")") {
		pods, err = shortSelector(parts[2])
	}
	return namespaces, pods, err
}

// within returns the text in the parentheses of a word.
func within(text, word string) (inside string, ok bool) {
	inside, ok = strings.CutPrefix(text, word+"(")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(inside, ")")
}

// commas splits a list.
func commas(text string) []string {
	var out []string
	for one := range strings.SplitSeq(text, ",") {
		out = append(out, strings.TrimSpace(one))
	}
	return out
}

func allPrefixes(list []string) bool {
	return !slices.ContainsFunc(list, func(text string) bool {
		_, err := netip.ParsePrefix(text)
		return err != nil
	})
}

// shortSelector reads a selector in the syntax of kubectl; * selects everything.
func shortSelector(text string) (*metav1.LabelSelector, error) {
	switch text = strings.TrimSpace(text); text {
	case "*":
		return &metav1.LabelSelector{}, nil
	case "":
		return nil, errors.New("a selector is empty: want * for everything")
	}
	sel, err := metav1.ParseToLabelSelector(text)
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w", text, err)
	}
	return sel, nil
}

// shortPort reads "80", "53/UDP", "8000-8010", "http", "dns/UDP", and "*/UDP" for
// every port of a protocol. Without a protocol the spec has none.
func shortPort(text string) (networkingv1.NetworkPolicyPort, error) {
	var p networkingv1.NetworkPolicyPort
	port, protocol, has := strings.Cut(text, "/")
	if has {
		proto := corev1.Protocol(protocol)
		p.Protocol = &proto
	}
	if port == "*" {
		return p, nil
	}
	first, last, isRange := strings.Cut(port, "-")
	number, err := parseNumber(first)
	if err != nil {
		name := intstr.FromString(port)
		p.Port = &name
		return p, nil
	}
	value := intstr.FromInt32(int32(number))
	p.Port = &value
	if isRange {
		end, err := parseNumber(last)
		if err != nil {
			return p, fmt.Errorf("port %q: %w", text, err)
		}
		n := int32(end)
		p.EndPort = &n
	}
	return p, nil
}

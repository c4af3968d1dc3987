package oracle

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// remote is a possible other end of a flow: a pod to which policies apply, at one of its addresses,
// or an address alone.
type remote struct {
	addr netip.Addr // invalid for a pod that has no address yet
	pod  *pod       // nil for an address alone
	note string     // why an address alone is not a pod, in words
}

// String returns the name of the pod, or the address.
func (r remote) String() string {
	if r.pod != nil {
		return r.pod.id.String()
	}
	return r.addr.String()
}

// matchesPeer evaluates one element of from or to in a policy of a namespace.
func (e evaluation) matchesPeer(namespace string, p networkingv1.NetworkPolicyPeer, r remote) match {
	selectors := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock != nil && selectors:
		return e.no("invalid: ipBlock together with a selector")
	case p.IPBlock != nil:
		return e.matchesBlock(p.IPBlock, r)
	case !selectors:
		return e.no("invalid: a peer must have a field")
	case r.pod == nil:
		return e.no("%s", r.note)
	}
	m := e.matchesNamespace(namespace, p, r.pod)
	if p.PodSelector == nil || !m.ok && !bool(e.words) {
		return m
	}
	pods := e.selects(p.PodSelector, labels.Set(r.pod.obj.Labels), r.pod.id)
	switch {
	case m.ok:
		return pods
	case !pods.ok: // who mends one of the two has to know of the other
		return match{why: both(m.why, pods.why, r.pod.id.String()+" ")}
	}
	return m
}

// both joins two sentences; it drops the second copy of a common subject.
func both(a, b, subject string) string {
	if rest, ok := strings.CutPrefix(b, subject); ok && strings.HasPrefix(a, subject) {
		return a + " and " + rest
	}
	return a + "; " + b
}

// matchesNamespace evaluates which namespaces a selector peer selects: those of the
// namespaceSelector, or the policy's own.
func (e evaluation) matchesNamespace(namespace string, p networkingv1.NetworkPolicyPeer, remote *pod) match {
	theirs := remote.id.Namespace
	if p.NamespaceSelector == nil {
		if theirs != namespace {
			return e.no("%s is not in namespace %s", remote.id, namespace)
		}
		return e.yes("same namespace")
	}
	set, known := e.oracle.NamespaceLabels(theirs)
	if !known {
		return e.no("namespace %s is not known", theirs)
	}
	if name, ok := onlyName(p.NamespaceSelector); ok && name != theirs {
		return e.no("%s is not in namespace %s", remote.id, name)
	}
	return e.selects(p.NamespaceSelector, set, namespaceName(theirs))
}

func (e evaluation) matchesBlock(b *networkingv1.IPBlock, r remote) match {
	blk, err := ParseBlock(b)
	if err != nil {
		return e.no("invalid: %v", err)
	}
	if !r.addr.IsValid() {
		return e.no("%s has no address", r)
	}
	ok, hole := blk.contains(r.addr)
	switch {
	case ok:
		return e.yes("%s", r.addr)
	case hole.IsValid():
		return e.no("%s is in except %s", r.addr, hole)
	}
	return e.no("%s is not in it", r.addr)
}

// peerText names a peer: "from app=api in namespaces team=a".
func peerText(d api.Direction, p networkingv1.NetworkPolicyPeer) string {
	word := preposition(d)
	switch {
	case p.IPBlock != nil && p.PodSelector == nil && p.NamespaceSelector == nil:
		text := word + " " + p.IPBlock.CIDR
		if len(p.IPBlock.Except) > 0 {
			text += " except " + strings.Join(p.IPBlock.Except, ", ")
		}
		return text
	case p.IPBlock != nil, p.PodSelector == nil && p.NamespaceSelector == nil:
		return word + " (invalid peer)"
	}
	pods, namespaces := "every pod", ""
	if p.PodSelector != nil {
		if text := selectorText(p.PodSelector); text != "" {
			pods = text
		}
	}
	if name, ok := onlyName(p.NamespaceSelector); ok {
		namespaces = " in namespace " + name
	} else if p.NamespaceSelector != nil {
		namespaces = " of every namespace"
		if text := selectorText(p.NamespaceSelector); text != "" {
			namespaces = " in namespaces " + text
		}
	}
	return fmt.Sprintf("%s %s%s", word, pods, namespaces)
}

// onlyName returns the name that a namespace selector requires, if it requires nothing else.
func onlyName(sel *metav1.LabelSelector) (string, bool) {
	if sel == nil || len(sel.MatchLabels) != 1 || len(sel.MatchExpressions) > 0 {
		return "", false
	}
	name, ok := sel.MatchLabels[corev1.LabelMetadataName]
	return name, ok
}

func preposition(d api.Direction) string {
	if d == api.Ingress {
		return "from"
	}
	return "to"
}

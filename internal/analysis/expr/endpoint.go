// Package expr parses the flows that users type: endpoints, ports, and questions such as
// "shop/web-0 data/postgres-0:5432/tcp". The commands, policy tests and scenarios share it, so that
// a text means the same everywhere. Callers resolve expressions against their cluster.
//
//	shop/web-0                       one pod
//	shop/app=web  shop/app in (a,b)  the pods of a namespace with these labels
//	app=web                          the pods of every namespace with these labels
//	shop/*  */*  */web-0             the pods of a namespace, of all, of one name in all
//	10.10.1.10                       an address
//	8080  8080/udp  http/tcp  icmp   a port with its protocol, tcp by default
//
// # Invariants
//
//   - An error names the text, cut where it is long, and the valid forms.
//   - No text makes the package panic.
package expr

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Everywhere stands for every namespace, and for every pod.
const Everywhere = "*"

// selectorSigns tell a selector from a name.
const selectorSigns = "=!<>(), "

// Endpoint is an end of a flow as it is written: an address, a pod, or a selection of pods.
type Endpoint struct {
	Text      string // as it was written, without spaces around it
	Addr      netip.Addr
	Namespace string          // of pods; Everywhere is every one
	Pods      string          // what is written of pods, behind the namespace
	Name      string          // of one pod in each of these namespaces
	Selector  labels.Selector // nil unless pods are selected by labels
}

// String returns the expression as it was written.
func (e Endpoint) String() string { return e.Text }

// Selects reports whether the expression stands for however many pods there are, and not for one
// endpoint that it names.
func (e Endpoint) Selects() bool { return e.Selector != nil || e.Namespace == Everywhere }

// IsWord reports whether a text has neither a namespace nor the signs of a selector. As an
// expression it stands for the pods that have a label of this name.
func IsWord(text string) bool {
	return !strings.Contains(text, "/") && !strings.ContainsAny(text, selectorSigns)
}

// ParseEndpoint reads an endpoint. The errors begin with the text.
func ParseEndpoint(text string) (Endpoint, error) {
	e := Endpoint{Text: strings.TrimSpace(text)}
	if addr, err := netip.ParseAddr(e.Text); err == nil {
		if addr.Zone() != "" {
			return Endpoint{}, fmt.Errorf("%s is an address with a zone", Quoted(e.Text))
		}
		e.Addr = addr.Unmap()
		return e, nil
	}
	if p, err := netip.ParsePrefix(e.Text); err == nil {
		return Endpoint{}, fmt.Errorf("%s is a prefix: want one address of it, such as %s", Quoted(e.Text), p.Addr())
	}
	// The keys of labels may have a slash too, but their prefixes have dots, which
	// names of namespaces have not.
	namespace, rest, ok := strings.Cut(e.Text, "/")
	if !ok || namespace != Everywhere && len(validation.IsDNS1123Label(namespace)) > 0 {
		if e.Text == "" {
			return Endpoint{}, fmt.Errorf(`"" is neither an address, nor namespace/pod, nor a selector such as app=web`)
		}
		e.Namespace, e.Pods = Everywhere, e.Text
		return e.withSelector()
	}
	e.Namespace, e.Pods = namespace, strings.TrimSpace(rest)
	switch {
	case e.Pods == "":
		return Endpoint{}, fmt.Errorf("%s has no pod: want for example %s/web-0, %s/app=web or %s/*", Quoted(e.Text), namespace, namespace, namespace)
	case len(validation.IsDNS1123Subdomain(e.Pods)) == 0:
		e.Name = e.Pods
		return e, nil
	}
	return e.withSelector()
}

// withSelector reads the selector of what is written of pods.
func (e Endpoint) withSelector() (_ Endpoint, err error) {
	if e.Pods == Everywhere {
		e.Selector = labels.Everything()
		return e, nil
	}
	if e.Selector, err = labels.Parse(e.Pods); err != nil {
		// The library repeats the text, however long it is.
		return Endpoint{}, fmt.Errorf("%s is not a pod, and not a label selector: %.300s", Quoted(e.Text), err.Error())
	}
	return e, nil
}

// Quoted returns a text for an error, in quotes, and cut where it is long.
func Quoted(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return strconv.Quote(s)
}

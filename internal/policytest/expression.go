package policytest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Expr is an endpoint expression: a pod, a selection of pods, an address, or the
// name of an external. The forms are
//
//	shop/web-0                       one pod
//	shop/app=web  shop/app in (a,b)  the live pods of a namespace with these labels
//	app=web                          the live pods of every namespace with these labels
//	shop/*  */*                      the live pods of a namespace, of all
//	10.10.1.10                       an address: of a pod, or outside of the cluster
//	internet                         a name from externals
//	svc/shop/web:http                the endpoints of a service, as the destination of a probe
type Expr struct {
	text      string
	namespace string          // "*": every namespace
	name      string          // of one pod in each of these namespaces
	selector  labels.Selector // nil unless the expression selects by labels
	external  []netip.Addr    // of an external with a name
	addr      netip.Addr
	service   *servicePort // nil unless the expression is one
}

// String returns the expression as it was written.
func (e Expr) String() string { return e.text }

// everywhere stands for every namespace, and for every pod.
const everywhere = "*"

// selects says whether the expression stands for however many pods there are,
// and not for one endpoint that it names.
func (e Expr) selects() bool { return e.selector != nil || e.namespace == everywhere }

// parseExpr reads an endpoint expression. The errors begin with the expression.
func parseExpr(text string, externals map[string][]netip.Addr) (Expr, error) {
	e := Expr{text: strings.TrimSpace(text)}
	if addr, err := netip.ParseAddr(e.text); err == nil {
		if addr.Zone() != "" {
			return Expr{}, fmt.Errorf("%s is an address with a zone", quoted(e.text))
		}
		e.addr = addr.Unmap()
		return e, nil
	}
	if s, ok, err := parseService(e.text); ok {
		e.service = s
		return e, err
	}
	if addrs, ok := externals[e.text]; ok {
		e.external = addrs
		return e, nil
	}
	if _, err := netip.ParsePrefix(e.text); err == nil {
		return Expr{}, fmt.Errorf("%s is a prefix: want one address of it", quoted(e.text))
	}
	// The keys of labels may have a slash too, but their prefixes have dots, which
	// names of namespaces have not.
	namespace, rest, ok := strings.Cut(e.text, "/")
	if !ok || namespace != everywhere && len(validation.IsDNS1123Label(namespace)) > 0 {
		return parseBareSelector(e)
	}
	e.namespace = namespace
	return parsePods(e, strings.TrimSpace(rest))
}

// parsePods reads what stands behind the namespace.
func parsePods(e Expr, rest string) (Expr, error) {
	switch {
	case rest == everywhere:
		e.selector = labels.Everything()
		return e, nil
	case rest == "":
		return Expr{}, fmt.Errorf("%s has no pod: want for example %s/web-0, %s/app=web or %s/*", quoted(e.text), e.namespace, e.namespace, e.namespace)
	case len(validation.IsDNS1123Subdomain(rest)) == 0:
		e.name = rest
		return e, nil
	}
	return parseSelector(e, rest)
}

func parseBareSelector(e Expr) (Expr, error) {
	if !strings.ContainsAny(e.text, "=!<>(), ") {
		return Expr{}, fmt.Errorf("%s is neither an external of this file nor an address, nor of the form namespace/pod or key=value", quoted(e.text))
	}
	e.namespace = everywhere
	return parseSelector(e, e.text)
}

func parseSelector(e Expr, text string) (Expr, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		// The library repeats the text, however long it is.
		return Expr{}, fmt.Errorf("%s is not a pod, and not a label selector: %.300s", quoted(e.text), err.Error())
	}
	e.selector = selector
	return e, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package policytest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/internal/analysis/expr"
)

// Expr is an endpoint expression, see package expr: pods, an address, or besides
//
//	internet           a name from externals
//	svc/shop/web:http  the endpoints of a service, as the destination of a probe
//
// Selections are of live pods.
type Expr struct {
	expr.Endpoint
	external []netip.Addr // of an external with a name
	service  *servicePort // nil unless the expression is one
}

// parseExpr reads an endpoint expression. The errors begin with the expression.
func parseExpr(text string, externals map[string][]netip.Addr) (Expr, error) {
	text = strings.TrimSpace(text)
	plain := expr.Endpoint{Text: text}
	if s, ok, err := parseService(text); ok {
		return Expr{Endpoint: plain, service: s}, err
	}
	if _, err := netip.ParseAddr(text); err != nil && expr.IsWord(text) {
		if addrs, ok := externals[text]; ok {
			return Expr{Endpoint: plain, external: addrs}, nil
		}
		return Expr{}, fmt.Errorf("%s is neither an external of this file nor an address, nor of the form namespace/pod or key=value", expr.Quoted(text))
	}
	e, err := expr.ParseEndpoint(text)
	return Expr{Endpoint: e}, err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

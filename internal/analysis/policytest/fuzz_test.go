package policytest

import (
	"net/netip"
	"strings"
	"testing"
)

func TestErrorsOfLongExpressionsAreShort(t *testing.T) {
	for _, s := range []string{"shop/" + strings.Repeat("\x82", 100_000), strings.Repeat("(", 100_000), strings.Repeat("a", 100_000), strings.Repeat("a=,", 100_000)} {
		if _, err := parseExpr(s, nil); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.10q and so on: the error is %.1200v", s, err)
		}
	}
}

// FuzzExpression: an expression that is read stands for exactly one kind of thing,
// is read as the same when it is written as it was, and what it stands for is what
// other packages read in it.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{
		"shop/web-0", "shop/app=web", "shop/app in (a,b)", "app=web", "shop/*", "*/*", "*/web-0", "10.10.1.10", "fd00::1", "::ffff:10.0.0.1",
		"internet", "10.0.0.0/8", "fe80::1%eth0", "app.kubernetes.io/name=web", "shop/", "/web", "a,b", "!a", " shop/web-0 ", "shop/app in (", "*",
	} {
		f.Add(s)
	}
	externals := map[string][]netip.Addr{"internet": {netip.MustParseAddr("203.0.113.1")}}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseExpr(s, externals)
		if err != nil {
			if !strings.HasPrefix(err.Error(), `"`) || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.200q: the error has %d bytes: %.300q", s, len(err.Error()), err)
			}
			return
		}
		kinds := 0
		for _, is := range []bool{e.Addr.IsValid(), e.external != nil, e.Selector != nil, e.Name != ""} {
			if is {
				kinds++
			}
		}
		if kinds != 1 || (e.Namespace == "") != (e.Addr.IsValid() || e.external != nil) {
			t.Fatalf("%q is read as %+v", s, e)
		}
		if a, err := netip.ParseAddr(strings.TrimSpace(s)); (err == nil) != e.Addr.IsValid() || err == nil && a.Unmap() != e.Addr {
			t.Errorf("%q is the address %v, net/netip says %v", s, e.Addr, a)
		}
		again, err := parseExpr(e.String(), externals)
		if err != nil || again.Namespace != e.Namespace || again.Name != e.Name || again.Addr != e.Addr || again.Selects() != e.Selects() ||
			e.Selector != nil && again.Selector.String() != e.Selector.String() {
			t.Errorf("%q is read as %+v, written as %q, and that read as %+v, %v", s, e, e, again, err)
		}
	})
}

package cli

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// TestExplainOfServicesShowsWholeVerdicts: what stands first, and the exit code.
func TestExplainOfServicesShowsWholeVerdicts(t *testing.T) {
	web := view.Service{Name: "shop/web", Port: 80, PortName: "http", Protocol: api.TCP, Endpoints: 2}
	at := web
	at.Address, at.PortName, at.Endpoints, at.Note = netip.MustParseAddr("10.96.0.1"), "", 1, "mind this"
	none := view.Service{Name: "shop/late", Port: 53, Protocol: api.UDP, Note: "no pod has the labels app=late"}
	flow := func(src string, dst byte, s view.Service, permit bool) view.Injection {
		a := netip.AddrFrom4([4]byte{10, 0, 0, dst})
		in := view.Injection{Src: view.Party{Name: src}, Dst: view.Party{Name: "shop/" + string('a'+rune(dst))}, Service: &s, Reason: "r", Verdict: api.Deny, Expected: api.Deny,
			Flow: api.Flow{Src: netip.MustParseAddr("10.0.0.9"), Dst: a, Protocol: api.TCP, SrcPort: 1, DstPort: 8080}}
		if permit {
			in.Verdict, in.Expected = api.Permit, api.Permit
		}
		return in
	}
	for want, answer := range map[string][]view.Injection{
		"ALLOWED  service shop/web port http (80/tcp): permitted to all 2 endpoints\n": {flow("x", 1, web, true), flow("x", 2, web, true)},
		"DENIED  service shop/web port http (80/tcp): permitted to 1 of 2 endpoints\n": {flow("x", 1, web, true), flow("x", 2, web, false)},
		"DENIED  service shop/web port http (80/tcp): permitted to none of 2 endpoints\n  deny  x  ->  shop/b  10.0.0.1:8080\n  deny  x  ->  shop/c  10.0.0.2:8080\n": {
			flow("x", 1, web, false), flow("x", 2, web, false)},
		"DENIED  service shop/web port http (80/tcp): permitted to 3 of 4 flows to its endpoints\n": {
			flow("x", 1, web, true), flow("x", 2, web, true), flow("y", 1, web, true), flow("y", 2, web, false)},
		"ALLOWED  service shop/web port http (80/tcp): permitted to its one endpoint; 1 more of the other address family\n": {flow("x", 1, web, true)},
		"ALLOWED  10.96.0.1 is service shop/web port 80/tcp: permitted to its one endpoint\n  note: mind this\n":            {flow("x", 1, at, true)},
		"DENIED  service shop/late port 53/udp: it has no endpoints\n  note: no pod has the labels app=late\n":              {{Service: &none, Verdict: api.Deny, Expected: api.Deny}},
	} {
		socket := agent(t, map[string]http.HandlerFunc{"POST /v1/inject": says(answer)})
		code, out, errOut := sluicectl(socket, "", "inject", "x", "svc/shop/web:80")
		if len(out) < len(want) || out[:len(want)] != want {
			t.Errorf("(-want +got):\n%s%s", cmp.Diff(want, out), errOut)
		}
		if all := want[0] == 'A'; (code == ExitOK) != all || (code == ExitDenied) == all {
			t.Errorf("%q: exit code %d", want, code)
		}
	}
}

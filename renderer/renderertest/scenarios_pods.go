package renderertest

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// renderAt renders a pod with given addresses.
func renderAt(pod int, ips []netip.Addr, ingress, egress *renderer.RuleList) change {
	return func(t *renderer.Changes) {
		t.Render(PodIDs[pod], renderer.PodConfig{IPs: ips, Ingress: ingress, Egress: egress})
	}
}

var podScenarios = []scenario{
	{"all addresses of a pod are restricted", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		ips := []netip.Addr{v4(0, 0), v4(0, 1), v6(0, 0), v6(0, 1)}
		only := list(from(api.Permit, api.AddrNet(v4(1, 0)), api.TCP, api.Port(80)), from(api.Permit, api.AddrNet(v6(1, 0)), api.TCP, api.Port(443)), denyAll)
		r.apply(all(openPods(), renderAt(0, ips, list(denyAll), only)))
		for n := range addressesPerPod {
			r.want(api.Permit, tcp(v4(1, 0), v4(0, n), 80))
			r.want(api.Deny, tcp(v4(1, 0), v4(0, n), 443))
			r.want(api.Permit, tcp(v6(1, 0), v6(0, n), 443))
			r.want(api.Deny, tcp(v6(1, 0), v6(0, n), 80))
			r.want(api.Deny, tcp(v6(0, n), v6(1, 0), 80))
		}
	}},
	{"pods of one family meet pods of both", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		any80 := list(from(api.Permit, anyNet, api.TCP, api.Port(80)), denyAll)
		r.apply(all(renderAt(0, []netip.Addr{v4(0, 0)}, nil, any80), renderAt(1, []netip.Addr{v6(1, 0)}, list(denyAll), any80), render(2, nil, any80)))
		r.want(api.Permit, tcp(v4(0, 0), v4(2, 0), 80))
		r.want(api.Deny, tcp(v6(1, 0), v6(2, 0), 80))
		r.want(api.Deny, tcp(v6(2, 0), v6(1, 0), 443))
	}},
	{"an address that is added to a pod is restricted too", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		l := list(from(api.Permit, anyNet, api.TCP, api.Port(80)), denyAll)
		r.apply(all(openPods(), renderAt(0, []netip.Addr{v4(0, 0)}, list(denyAll), l)))
		r.apply(renderAt(0, []netip.Addr{v4(0, 0), v6(0, 0)}, list(denyAll), l))
		r.want(api.Deny, tcp(v6(1, 0), v6(0, 0), 443))
		r.want(api.Deny, tcp(v6(0, 0), v6(1, 0), 443))
	}},
	{"a pod that changes its address takes its rules along", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		l := list(from(api.Permit, anyNet, api.TCP, api.Port(80)), denyAll)
		r.apply(all(openPods(), render(0, list(denyAll), l)))
		r.apply(renderAt(0, []netip.Addr{v4(0, 1), v6(0, 1)}, list(denyAll), l))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 1), 443))
		r.want(api.Deny, tcp(v4(0, 1), v4(1, 0), 443))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 443))
	}},
	{"a removed pod leaves nothing behind", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, list(denyAll), list(denyAll)), render(1, nil, webFrom(frontends)), update(frontends, hosts(v4(0, 0)), nil)))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
		r.apply(remove(0))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 81))
		r.want(api.Permit, tcp(v4(2, 0), v4(0, 0), 80))
		r.apply(all(remove(0), remove(1), remove(2)))
		r.apply(openPods())
	}},
	{"removing an unknown pod does nothing", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(render(0, nil, list(denyAll)))
		if n := r.operations(func() { r.apply(remove(3)) }); n != 0 {
			t.Errorf("it took %d operations, want 0", n)
		}
	}},
	{"a new pod on an old address inherits nothing", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, list(denyAll), webFrom(frontends)), update(frontends, hosts(v4(1, 0)), nil)))
		r.apply(all(remove(0), renderAt(3, []netip.Addr{v4(0, 0), v6(0, 0)}, nil, list(from(api.Permit, anyNet, api.UDP, api.Port(53)), denyAll))))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Permit, flow(v4(2, 0), v4(0, 0), probe{api.UDP, 53}))
	}},
	{"two pods exchange their addresses", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		closed, open80 := list(denyAll), list(from(api.Permit, anyNet, api.TCP, api.Port(80)), denyAll)
		r.apply(all(openPods(), render(0, nil, closed), render(1, nil, open80)))
		r.apply(all(renderAt(0, both(1), nil, closed), renderAt(1, both(0), nil, open80)))
		r.want(api.Permit, tcp(v4(2, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(2, 0), v4(1, 0), 80))
	}},
	{"the last of several changes to a pod counts", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, nil, list(denyAll)), render(0, nil, nil), render(1, nil, nil), remove(1), render(1, nil, list(denyAll)),
			render(2, nil, list(denyAll)), remove(2)))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(v4(0, 0), v4(2, 0), 80))
	}},
}

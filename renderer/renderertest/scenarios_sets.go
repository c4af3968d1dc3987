package renderertest

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Sets of the suite.
var (
	frontends = api.NewSetID("renderertest frontends")
	backends  = api.NewSetID("renderertest backends")
	blocks    = api.NewSetID("renderertest blocks")
)

// webFrom and webTo are lists that name a set on port 80 and 443.
func webFrom(id api.SetID) *renderer.RuleList {
	return list(from(api.Permit, api.SetNet(id), api.TCP, api.Port(80)), from(api.Permit, api.SetNet(id), api.TCP, api.Port(443)), denyAll)
}

func webTo(id api.SetID) *renderer.RuleList {
	return list(to(api.Permit, api.SetNet(id), api.TCP, api.Port(80)), denyAll)
}

var setScenarios = []scenario{
	{"members join and leave a set", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), update(frontends, hosts(v4(1, 0)), nil), render(0, webTo(frontends), webFrom(frontends))))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 443))
		r.want(api.Deny, tcp(v4(2, 0), v4(0, 0), 80))
		r.apply(update(frontends, hosts(v4(2, 0), outside[1]), nil))
		r.want(api.Permit, tcp(v4(2, 0), v4(0, 0), 80))
		r.want(api.Permit, tcp(v4(0, 0), v4(2, 0), 80))
		r.want(api.Permit, tcp(outside[1], v4(0, 0), 80))
		r.apply(update(frontends, hosts(v4(3, 0)), hosts(v4(1, 0))))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Permit, tcp(v4(0, 0), v4(3, 0), 80))
		r.apply(update(frontends, nil, hosts(v4(2, 0), v4(3, 0), outside[1])))
		r.want(api.Deny, tcp(v4(2, 0), v4(0, 0), 80))
	}},
	{"a set that was never updated is empty", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, webTo(frontends), webFrom(frontends))))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
		r.apply(update(frontends, hosts(v4(1, 0)), nil))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
	}},
	{"a set may be updated before a rule names it", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), update(frontends, hosts(v4(1, 0), v6(1, 0)), nil)))
		r.apply(update(frontends, hosts(v4(2, 0)), hosts(v4(1, 0))))
		r.apply(render(0, nil, webFrom(frontends)))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Permit, tcp(v4(2, 0), v4(0, 0), 80))
		r.want(api.Permit, tcp(v6(1, 0), v6(0, 0), 80))
	}},
	{"a deny by set stops nothing when the set is empty", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, nil, list(from(api.Deny, api.SetNet(frontends), api.AnyProtocol, api.AnyPort), permitAll))))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
		r.apply(update(frontends, hosts(v4(1, 0)), nil))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.apply(update(frontends, nil, hosts(v4(1, 0))))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
	}},
	{"sets hold prefixes of both families", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		members := []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("198.51.0.0/16"), netip.MustParsePrefix("fd00:0:0:c8::/64")}
		r.apply(all(openPods(), update(blocks, members, nil), render(0, webTo(blocks), webFrom(blocks))))
		r.want(api.Permit, tcp(v4(1, 1), v4(0, 0), 443))
		r.want(api.Deny, tcp(v4(2, 0), v4(0, 0), 443))
		r.want(api.Permit, tcp(outside[2], v4(0, 0), 443))
		r.want(api.Permit, tcp(v6(0, 0), outside[3], 80))
		r.want(api.Deny, tcp(v6(0, 0), outside[4], 80))
		r.apply(update(blocks, hosts(v4(1, 1)), members[:1]))
		r.want(api.Permit, tcp(v4(1, 1), v4(0, 0), 443))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 443))
	}},
	{"several sets and lists share members", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		mixed := list(from(api.Deny, api.SetNet(backends), api.TCP, api.Port(80)), from(api.Permit, api.SetNet(frontends), api.TCP, api.Ports(80, 443)),
			from(api.Permit, api.SetNet(backends), api.UDP, api.AnyPort), denyAll)
		r.apply(all(openPods(), render(0, webTo(backends), mixed), render(1, nil, mixed), render(2, webTo(frontends), nil),
			update(frontends, hosts(v4(2, 0), v4(3, 0)), nil), update(backends, hosts(v4(3, 0), v4(4, 0), v4(0, 0)), nil)))
		r.want(api.Permit, tcp(v4(3, 0), v4(1, 0), 81))
		r.want(api.Deny, tcp(v4(3, 0), v4(1, 0), 80))
		r.apply(update(backends, hosts(v4(2, 0)), hosts(v4(3, 0))))
		r.want(api.Permit, tcp(v4(3, 0), v4(1, 0), 80))
		r.apply(all(update(frontends, hosts(v4(0, 0)), hosts(v4(2, 0))), update(backends, nil, hosts(v4(0, 0), v4(2, 0)))))
		r.want(api.Deny, tcp(v4(2, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(v4(3, 0), v4(1, 0), 80))
	}},
	{"the node set is a set like others", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), update(api.NodeSet, hosts(outside[1], outside[4]), nil),
			render(0, nil, list(from(api.Permit, api.SetNet(api.NodeSet), api.AnyProtocol, api.AnyPort), denyAll))))
		r.want(api.Permit, tcp(outside[1], v4(0, 0), 80))
		r.want(api.Permit, tcp(outside[4], v6(0, 0), 80))
		r.want(api.Deny, tcp(outside[2], v4(0, 0), 80))
	}},
	{"a set and the rules that name it come and go together", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(openPods())
		for range 3 {
			r.apply(all(render(0, nil, webFrom(frontends)), update(frontends, hosts(v4(1, 0)), nil)))
			r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
			r.apply(all(update(frontends, nil, hosts(v4(1, 0))), render(0, nil, nil)))
			r.want(api.Permit, tcp(v4(2, 0), v4(0, 0), 80))
		}
	}},
}

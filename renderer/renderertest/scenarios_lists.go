package renderertest

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

var openScenarios = []scenario{
	{"pods without lists are open and cost little", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.check()
		n := r.operations(func() { r.apply(openPods()) })
		if n > 2*len(PodIDs)+4 {
			t.Errorf("%d pods without lists took %d operations, want at most two each and a few", len(PodIDs), n)
		}
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(outside[1], v4(1, 0), 80))
	}},
	{"one pod with lists leaves the others open", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(openPods())
		r.apply(render(0, list(denyAll), list(denyAll)))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Permit, tcp(v4(1, 0), v4(2, 0), 80))
		r.apply(render(0, nil, nil))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 80))
	}},
	{"lists that permit everything are open", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, list(permitAll), list(permitAll))))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 80))
	}},
}

var listScenarios = []scenario{
	{"an egress list restricts what reaches the pod", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(1, nil, list(from(api.Permit, api.AddrNet(v4(0, 0)), api.TCP, api.Port(80)), denyAll))))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 81))
		r.want(api.Deny, tcp(v4(2, 0), v4(1, 0), 80))
		r.want(api.Deny, tcp(outside[1], v4(1, 0), 80))
		r.want(api.Permit, tcp(v4(1, 0), v4(2, 0), 80))
		r.want(api.Permit, tcp(v4(1, 0), outside[1], 80))
	}},
	{"an ingress list restricts what leaves the pod", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(1, list(to(api.Permit, api.AddrNet(v4(0, 0)), api.TCP, api.Port(80)), denyAll), nil)))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 81))
		r.want(api.Deny, tcp(v4(1, 0), v4(2, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), outside[1], 80))
		r.want(api.Permit, tcp(v4(2, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(outside[1], v4(1, 0), 80))
	}},
	{"both ends must permit", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(),
			render(0, list(to(api.Permit, cidr("10.1.0.0/16"), api.TCP, api.Port(80)), to(api.Permit, api.AddrNet(v4(1, 0)), api.TCP, api.Ports(443, 8005)), denyAll), nil),
			render(1, nil, list(from(api.Permit, api.AddrNet(v4(0, 0)), api.TCP, api.Ports(81, 443)), from(api.Permit, anyNet, api.TCP, api.Ports(8000, 8010)), denyAll))))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 443))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 8000))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 8010))
		r.want(api.Permit, tcp(outside[1], v4(1, 0), 8010))
		r.want(api.Permit, tcp(v4(0, 0), v4(2, 0), 80))
	}},
	{"both ends have both lists", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		web := list(from(api.Permit, cidr("10.1.0.0/22"), api.TCP, api.Port(80)), from(api.Permit, anyNet, api.AnyProtocol, api.AnyPort))
		out := list(to(api.Permit, cidr("10.1.1.0/24"), api.AnyProtocol, api.AnyPort), to(api.Permit, anyNet, api.UDP, api.Port(53)), denyAll)
		changes := []change{openPods()}
		for pod := range 4 {
			changes = append(changes, render(pod, out, web))
		}
		changes = append(changes, render(4, list(denyAll), web), render(5, out, list(denyAll)))
		r.apply(all(changes...))
		r.want(api.Permit, tcp(v4(0, 0), v4(1, 0), 443))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 443))
		r.want(api.Deny, flow(v4(0, 0), v4(5, 0), probe{api.UDP, 53}))
	}},
	{"port ranges hold their bounds and nothing more", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, nil, list(
			from(api.Permit, anyNet, api.TCP, api.Ports(8000, 8010)), from(api.Permit, anyNet, api.TCP, api.Ports(65535, 65535)), denyAll))))
		for port, action := range map[uint16]api.Action{7999: api.Deny, 8000: api.Permit, 8010: api.Permit, 8011: api.Deny, 65535: api.Permit, 80: api.Deny} {
			r.want(action, tcp(v4(1, 0), v4(0, 0), port))
		}
	}},
	{"protocols are kept apart", func(t TB, newSubject func() Subject) {
		for i, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
			r := newRig(t, newSubject())
			r.apply(all(openPods(), render(0, nil, list(from(api.Permit, anyNet, p, api.Port(80)), denyAll))))
			r.apply(render(0, nil, list(from(api.Permit, anyNet, p, api.AnyPort), denyAll)))
			for j, q := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP} {
				r.want(action(i == j), flow(v4(1, 0), v4(0, 0), probe{q, 80}))
			}
		}
	}},
	{"icmp can be named and is part of any protocol", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		ping := probe{protocol: api.ICMP}
		r.apply(all(openPods(), render(0, nil, list(from(api.Permit, anyNet, api.ICMP, api.AnyPort), denyAll))))
		r.want(api.Permit, flow(v4(1, 0), v4(0, 0), ping))
		r.want(api.Deny, flow(v6(1, 0), v6(0, 0), ping))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.apply(render(0, nil, list(from(api.Permit, api.AddrNet(v6(1, 0)), api.AnyProtocol, api.AnyPort), denyAll)))
		r.want(api.Permit, flow(v6(1, 0), v6(0, 0), ping))
		r.want(api.Deny, flow(v6(2, 0), v6(0, 0), ping))
	}},
	{"the whole of one family says nothing about the other", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, list(to(api.Permit, cidr("::/0"), api.TCP, api.AnyPort), denyAll),
			list(from(api.Permit, cidr("0.0.0.0/0"), api.TCP, api.AnyPort), denyAll))))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v6(1, 0), v6(0, 0), 80))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(v6(0, 0), v6(1, 0), 80))
	}},
	{"the first rule that matches decides", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(all(openPods(), render(0, nil, list(
			from(api.Permit, api.AddrNet(v4(1, 0)), api.TCP, api.Port(80)),
			from(api.Deny, cidr("10.1.1.0/24"), api.AnyProtocol, api.AnyPort),
			from(api.Permit, cidr("10.1.0.0/16"), api.TCP, api.Ports(80, 443)),
			from(api.Deny, anyNet, api.TCP, api.Ports(81, 8005)),
			permitAll))))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 443))
		r.want(api.Permit, tcp(v4(2, 0), v4(0, 0), 443))
		r.want(api.Deny, tcp(outside[1], v4(0, 0), 443))
		r.want(api.Permit, tcp(outside[1], v4(0, 0), 80))
	}},
	{"a list can change in every way", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		web := from(api.Permit, anyNet, api.TCP, api.Port(80))
		one := from(api.Permit, api.AddrNet(v4(1, 0)), api.AnyProtocol, api.AnyPort)
		deny := from(api.Deny, cidr("10.1.0.0/16"), api.TCP, api.AnyPort)
		r.apply(openPods())
		for _, rules := range [][]api.ContivRule{
			{denyAll}, {web, denyAll}, {one, web, denyAll}, {web, one, denyAll}, {deny, web, one, permitAll}, {one, deny, web, permitAll}, {permitAll}, {denyAll},
		} {
			r.apply(render(0, nil, list(rules...)))
		}
		r.apply(render(0, nil, nil))
	}},
	{"equal lists of several pods are separate", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		shared := list(from(api.Permit, api.AddrNet(v4(5, 0)), api.TCP, api.Port(80)), denyAll)
		r.apply(all(openPods(), render(0, nil, shared), render(1, nil, shared), render(2, sharedOut(), shared), render(3, sharedOut(), nil)))
		r.apply(render(1, nil, list(denyAll)))
		r.want(api.Permit, tcp(v4(5, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(5, 0), v4(1, 0), 80))
		r.apply(remove(0))
		r.want(api.Permit, tcp(v4(5, 0), v4(2, 0), 80))
	}},
}

// sharedOut returns a new list that equals all its earlier results.
func sharedOut() *renderer.RuleList {
	return list(to(api.Permit, api.AddrNet(v4(4, 0)), api.TCP, api.Port(80)), denyAll)
}

func action(permit bool) api.Action {
	if permit {
		return api.Permit
	}
	return api.Deny
}

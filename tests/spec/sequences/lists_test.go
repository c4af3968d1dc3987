package sequences

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// The cast of most lists: two namespaces, a shop with three pods on two nodes, and one
// pod of another team.
var (
	shop = ns("shop", "team=a")
	town = ns("town", "team=b")

	web     = serving(pod("shop/web", "app=web", "one", "10.1.0.1", "fd00::1"), "http=80/tcp")
	backend = serving(pod("shop/api", "app=api", "two", "10.1.0.2", "fd00::2"), "http=8080/tcp")
	db      = pod("shop/db", "app=db", "one", "10.1.0.3")
	mayor   = pod("town/mayor", "app=web,env=prod", "two", "10.1.1.1")

	cast = []any{shop, town, web, backend, db, mayor}
)

// base returns the lists that are written here.
func base() []list {
	return slices.Concat(policyLists(), podLists(), addressLists(), oddLists(), tierLists())
}

func policyLists() []list {
	onlyAPI := policy("shop/web", "app=web", in(pods("app=api"), port("tcp/80")))
	closed := policy("shop/closed", "", types(ingress, egress))
	outOnly := policy("shop/web", "app=web", types(egress), out(pods("app=db"), port("tcp/5432")))
	return []list{
		{name: "policies before pods, and after", states: []cluster.State{
			of(onlyAPI, policy("town/mayor", "app=web", in(namespaces("team=a")))),
			of(onlyAPI, policy("town/mayor", "app=web", in(namespaces("team=a"))), cast),
			of(onlyAPI, cast),
			of(cast),
		}},
		{name: "isolation on and off, in both directions", states: []cluster.State{
			of(cast),
			of(cast, policy("shop/web", "app=web", types(ingress))),
			of(cast, policy("shop/web", "app=web", types(ingress, egress)), policy("shop/db", "app=db", types(egress))),
			of(cast, closed),
			of(cast, closed, policy("shop/open", "", in(), out())),
		}},
		{name: "policyTypes change under the same rules", states: []cluster.State{
			of(cast, policy("shop/web", "app=web", types(ingress), in(pods("app=api")), out(pods("app=db")))),
			of(cast, policy("shop/web", "app=web", types(ingress, egress), in(pods("app=api")), out(pods("app=db")))),
			of(cast, policy("shop/web", "app=web", types(egress), in(pods("app=api")), out(pods("app=db")))),
			of(cast, outOnly),
		}},
		{name: "tables that pods share and leave", states: []cluster.State{
			of(cast, policy("shop/all", "", in(pods("app=api")))),
			of(cast, policy("shop/all", "", in(pods("app=api"))), policy("shop/db", "app=db", in(pods("app=web")))),
			of(cast, policy("shop/one", "app=web", in(pods("app=api"))), policy("shop/two", "app=db", in(pods("app=api")))),
			of(cast, policy("shop/one", "app in (web,db)", in(pods("app=api")), in(block("198.51.100.0/24"))), policy("shop/two", "app=db", in(pods("app=api")))),
		}},
		{name: "blocks with excepts that overlap pods", states: []cluster.State{
			of(cast, policy("shop/web", "app=web", in(block("10.1.0.0/16", "10.1.0.2/32"), port("tcp/80")))),
			of(cast, policy("shop/web", "app=web", in(block("10.1.0.0/16", "10.1.0.0/24"), port("tcp/80")), in(block("10.1.0.2/31")))),
			of(cast, policy("shop/web", "app=web", in(block("10.1.0.0/24", "10.1.0.2/31"), block("10.1.0.3/32"), pods("app=api"))), policy("shop/api", "app=api", out(block("0.0.0.0/0", "10.1.0.0/30")))),
			of(cast, policy("shop/web", "app=web", in(block("fd00::/64", "fd00::2/127"))), policy("shop/api", "app=api", out(block("::/0")))),
		}},
		{name: "blocks with holes that begin alike", states: []cluster.State{
			of(cast, policy("shop/web", "app=web", in(block("10.1.0.0/16", "10.1.0.2/32", "10.1.1.0/24"), port("tcp/80")), in(block("10.1.0.0/16", "10.1.0.2/31"), port("tcp/81")))),
			of(cast, policy("shop/web", "app=web", in(block("10.1.0.0/16", "10.1.0.2/31"), port("tcp/80"))), policy("shop/db", "app=db", in(block("10.1.0.0/16", "10.1.0.2/32", "10.1.1.0/24"), port("tcp/80")))),
			of(cast, policy("shop/web", "app=web", in(block("10.1.0.0/16", "10.1.0.2/32"), port("tcp/80"))), banp(everyPod, to("Deny", "{networks: [10.1.0.0/31, 10.1.0.4/30, 10.1.0.8/29, 10.1.0.16/28, 10.1.0.32/27]}, {networks: [10.1.0.0/31, 10.1.1.0/32, 10.1.1.4/30, 10.1.1.8/29, 10.1.1.16/28]}", onTCP80Old))),
		}},
		{name: "ports, ranges and protocols", states: []cluster.State{
			of(cast, policy("shop/web", "app=web", in(port("tcp/80"), port("udp/53")))),
			of(cast, policy("shop/web", "app=web", in(port("tcp/80-443"), port("udp")))),
			of(cast, policy("shop/web", "app=web", in(pods("app=api"), port("tcp/81-8080"), port("sctp/80")), in(pods("app=db")))),
		}},
	}
}

func podLists() []list {
	named := policy("shop/named", "", in(namespaces(""), port("tcp/http")))
	toNamed := policy("town/out", "", types(egress), out(namespaces("team=a"), port("tcp/http")))
	onNode := policy("shop/web", "app=web", in(pods("app in (api,db)")))
	return []list{
		{name: "pods and namespaces get other labels", states: []cluster.State{
			of(cast, policy("shop/web", "app=web", in(podsOf("team=b", "app=web"))), policy("shop/api", "tier=back", types(ingress))),
			of(shop, ns("town", "team=a"), relabel(web, "app=api"), relabel(backend, "app=web,tier=back"), db, mayor, policy("shop/web", "app=web", in(podsOf("team=b", "app=web"))), policy("shop/api", "tier=back", types(ingress))),
			of(ns("shop", "team=b"), ns("town", "team=b"), web, relabel(backend, "tier=back"), relabel(db, "app=web"), relabel(mayor, "app=db"), policy("shop/web", "app=web", in(podsOf("team=b", "app=web"))), policy("shop/api", "tier=back", types(ingress))),
			of(ns("shop", ""), ns("town", "team=b"), relabel(web, ""), backend, db, mayor, policy("shop/web", "app notin (api)", in(podsOf("team notin (a)", "app")))),
		}},
		{name: "namespaces after pods, and deleted with everything", states: []cluster.State{
			of(web, backend, mayor, policy("shop/web", "app=web", in(namespaces("team=b")))),
			of(town, web, backend, mayor, policy("shop/web", "app=web", in(namespaces("team=b")))),
			of(shop, town, web, backend, mayor, policy("shop/web", "app=web", in(namespaces("kubernetes.io/metadata.name=town")), out(namespaces("team=a")))),
			of(shop, web, backend, policy("shop/web", "app=web", in(namespaces("team=b")), out(namespaces("team=a")))),
			of(town, mayor),
		}},
		{name: "named ports appear, move and vanish", states: []cluster.State{
			of(cast, named, toNamed),
			of(shop, town, serving(web, "http=81/udp"), backend, serving(db, "http=8080/tcp"), mayor, named, toNamed),
			of(shop, town, pod("shop/web", "app=web", "one", "10.1.0.1", "fd00::1"), serving(pod("shop/api", "app=api", "two", "10.1.0.2", "fd00::2"), "http=80/tcp"), db, mayor, named, toNamed),
			of(shop, town, web, backend, db, mayor, toNamed),
		}},
		{name: "pods move between nodes", states: []cluster.State{
			of(cast, onNode),
			of(shop, town, on(web, "two"), on(backend, "one"), db, mayor, onNode),
			of(shop, town, on(web, "two"), on(backend, "one"), on(db, "two"), on(mayor, "one"), onNode, policy("shop/db", "app=db", types(egress))),
			of(shop, town, web, backend, on(db, "two"), mayor, onNode),
		}},
		{name: "pods in the host network, and pods that end", states: []cluster.State{
			of(cast, onNode, policy("shop/api", "app=api", out(pods("app=web")))),
			of(shop, town, web, with(backend, hostNetwork), with(db, finished), mayor, onNode, policy("shop/api", "app=api", out(pods("app=web")))),
			of(shop, town, with(web, terminating), with(backend, failed), with(db, pending), with(mayor, hostNetwork), onNode, policy("shop/api", "app=api", out(pods("app=web")))),
			of(shop, town, with(web, hostNetwork), backend, db, mayor, onNode),
		}},
		{name: "traffic of nodes is restricted as all other", denyNode: true, states: []cluster.State{
			of(cast, policy("shop/web", "app=web", types(ingress, egress))),
			of(cast, policy("shop/web", "app=web", in(block("192.168.0.0/24")), types(ingress, egress)), policy("shop/api", "app=api", types(egress))),
			of(shop, on(web, "two"), policy("shop/web", "app=web", in(block("192.168.0.2/32")))),
		}},
	}
}

func addressLists() []list {
	web80 := policy("shop/web", "app=web", in(pods("app=api"), port("tcp/80")))
	apiOut := policy("shop/api", "app=api", out(pods("app=web")))
	return []list{
		{name: "addresses come late, change and are used again", states: []cluster.State{
			of(shop, at(web), backend, db, web80, apiOut),
			of(shop, web, at(backend, "10.1.0.7"), db, web80, apiOut),
			of(shop, at(web, "10.1.0.2"), at(backend, "10.1.0.1"), db, web80, apiOut),
			of(shop, at(web, "10.1.0.3"), backend, pod("shop/new", "app=db", "two", "10.1.0.1"), web80, apiOut),
			of(shop, with(web, finished), pod("shop/next", "app=api", "one", "10.1.0.1", "fd00::1"), web80, apiOut),
		}},
		{name: "one family, both, and the other one", states: []cluster.State{
			of(shop, at(web, "10.1.0.1"), at(backend, "10.1.0.2"), web80, apiOut),
			of(shop, web, at(backend, "10.1.0.2"), web80, apiOut),
			of(shop, web, backend, web80, policy("shop/api", "app=api", out(pods("app=web")), out(block("fd00::/16")))),
			of(shop, at(web, "fd00::1"), at(backend, "fd00::2"), web80, policy("shop/api", "app=api", out(block("0.0.0.0/0")))),
		}},
	}
}

// oddLists have what today's API servers refuse, but old objects can have.
func oddLists() []list {
	everywhere := func(np *networkingv1.NetworkPolicySpec) { np.PolicyTypes = nil }
	badSelector := policy("shop/web", "app=web", in(pods("app=api")))
	badSelector.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}
	badPeer := policy("shop/web", "app=web", in(peer(networkingv1.NetworkPolicyPeer{})), in(block("10.1.0.300/24")), in(pods("app=api"), port("tcp/90-80")))
	return []list{
		{name: "odd policies", states: []cluster.State{
			of(cast, policy("shop/web", "app=web", in(pods("app=api")))),
			of(cast, badSelector),
			of(cast, badPeer),
			of(cast, policy("shop/web", "app=web", everywhere, in(block("10.1.0.0/16", "10.0.0.0/8")), out(namespaces("team=b")))),
			of(cast, policy("shop/web", "app=web", types("Sideways"), in(pods("app=api")))),
		}},
		{name: "odd pods", states: []cluster.State{
			of(shop, at(web, "10.1.0.1", "not an address", "fd00::1"), at(backend, "10.1.0.2", "10.1.0.2"), policy("shop/web", "app=web", in(pods("app=api")))),
			of(shop, at(web, "not an address"), backend, policy("shop/web", "app=web", in(pods("app=api")))),
			of(shop, at(web, "::ffff:10.1.0.1"), at(backend, "0.0.0.0", "10.1.0.2"), policy("shop/web", "app=web", in(pods("app=api")))),
			of(shop, at(web, "10.1.0.1"), unscheduled(backend), db, policy("shop/web", "app=web", in(pods("app=api")))),
		}},
	}
}

// relabel, on and at are pods with other labels, on another node, at other addresses.

func relabel(p *corev1.Pod, set string) *corev1.Pod {
	return with(p, func(p *corev1.Pod) { p.Labels = labelsOf(set) })
}

func on(p *corev1.Pod, node string) *corev1.Pod {
	return with(p, func(p *corev1.Pod) {
		fresh := pod(p.Namespace+"/"+p.Name, "", node)
		p.Spec.NodeName, p.Status.HostIP, p.Status.HostIPs = node, fresh.Status.HostIP, fresh.Status.HostIPs
	})
}

func at(p *corev1.Pod, addrs ...string) *corev1.Pod {
	return with(p, func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "", nil
		for _, a := range addrs {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
		if len(addrs) > 0 {
			p.Status.PodIP = addrs[0]
		}
	})
}

// unscheduled is a pod that no node has taken.
func unscheduled(p *corev1.Pod) *corev1.Pod {
	return with(at(p), func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.HostIP, p.Status.HostIPs, p.Status.Phase = "", "", nil, corev1.PodPending
	})
}

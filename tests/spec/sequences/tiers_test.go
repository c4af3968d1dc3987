package sequences

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// The words for admin policies: their specs are YAML, in which from and to are peers and on is a
// list of ports.

// cnp is a ClusterNetworkPolicy ("Admin 10") of rules.
func cnp(name, standing, subject string, rules ...rule) *v1alpha2.ClusterNetworkPolicy {
	var tier string
	var priority int32
	if _, err := fmt.Sscan(standing, &tier, &priority); err != nil {
		panic(err)
	}
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	read(specText(subject, rules), &p.Spec)
	p.Spec.Tier, p.Spec.Priority = v1alpha2.Tier(tier), priority
	return p
}

// anp is an AdminNetworkPolicy.
func anp(name string, priority int32, subject string, rules ...rule) *v1alpha1.AdminNetworkPolicy {
	p := &v1alpha1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	read(specText(subject, rules), &p.Spec)
	p.Spec.Priority = priority
	return p
}

// banp is the BaselineAdminNetworkPolicy.
func banp(subject string, rules ...rule) *v1alpha1.BaselineAdminNetworkPolicy {
	p := &v1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	read(specText(subject, rules), &p.Spec)
	return p
}

// rule is a rule in YAML, and the direction that it is for.
type rule struct{ direction, text string }

// from is a rule for ingress, to one for egress. more are other fields.
func from(action, peers, more string) rule {
	return rule{"ingress", fmt.Sprintf("{action: %s, from: [%s]%s}", action, peers, more)}
}

func to(action, peers, more string) rule {
	return rule{"egress", fmt.Sprintf("{action: %s, to: [%s]%s}", action, peers, more)}
}

func specText(subject string, rules []rule) string {
	lists := map[string]string{}
	for _, r := range rules {
		lists[r.direction] += r.text + ", "
	}
	return fmt.Sprintf("{subject: %s, ingress: [%s], egress: [%s]}", subject, lists["ingress"], lists["egress"])
}

func read(text string, into any) {
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
}

// Peers and subjects.
const (
	everyPod  = "{namespaces: {}}"
	ofTeamA   = "{namespaces: {matchLabels: {team: a}}}"
	ofTeamB   = "{namespaces: {matchLabels: {team: b}}}"
	appWeb    = "{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}"
	appAPI    = "{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}"
	apiOrDB   = "{pods: {namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [api, db]}]}}}"
	prod      = "{pods: {namespaceSelector: {}, podSelector: {matchLabels: {env: prod}}}}"
	zoneNodes = "{nodes: {matchLabels: {zone: a}}}"

	allPorts   = ""
	onTCP80    = ", protocols: [{tcp: {destinationPort: {number: 80}}}]"
	onTCP80to  = ", protocols: [{tcp: {destinationPort: {range: {start: 80, end: 8080}}}}]"
	onHTTP     = ", protocols: [{destinationNamedPort: http}]"
	onHTTPOld  = ", ports: [{namedPort: http}]"
	onTCP80Old = ", ports: [{portNumber: {protocol: TCP, port: 80}}]"
)

// host is a node with labels, and more addresses than its own.
func host(name, set string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelsOf(set)}}
	for _, a := range slices.Concat(hosts[name], addrs) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// tierLists have admin policies.
func tierLists() []list {
	onlyAPI := policy("shop/web", "app=web", in(pods("app=api"), port("tcp/80")))
	allow := cnp("m", "Admin 10", ofTeamA, from("Accept", everyPod, onTCP80), to("Accept", appAPI, allPorts))
	deny := func(name string, priority int) *v1alpha2.ClusterNetworkPolicy {
		return cnp(name, fmt.Sprint("Admin ", priority), everyPod, from("Deny", ofTeamB, allPorts), to("Deny", everyPod, onTCP80to))
	}
	return []list{
		{name: "priorities change, and are equal", states: []cluster.State{
			of(cast, onlyAPI, allow, deny("z", 20)),
			of(cast, onlyAPI, allow, deny("z", 5)),
			of(cast, onlyAPI, allow, deny("z", 10)),
			of(cast, onlyAPI, allow, deny("a", 10)),
			of(cast, onlyAPI, allow, anp("m", 10, everyPod, to("Deny", everyPod, onTCP80Old))),
		}},
		{name: "namespaces of a subject get other labels", states: []cluster.State{
			of(cast, cnp("guard", "Admin 1", ofTeamA, from("Deny", ofTeamB, allPorts)), banp(ofTeamB, to("Deny", ofTeamA, onTCP80Old))),
			of(ns("shop", "team=b"), town, web, backend, db, mayor, cnp("guard", "Admin 1", ofTeamA, from("Deny", ofTeamB, allPorts)), banp(ofTeamB, to("Deny", ofTeamA, onTCP80Old))),
			of(ns("shop", "team=b"), ns("town", "team=a"), web, backend, db, mayor, cnp("guard", "Admin 1", ofTeamA, from("Deny", ofTeamB, allPorts)), banp(ofTeamB, to("Deny", ofTeamA, onTCP80Old))),
			of(shop, web, backend, db, mayor, cnp("guard", "Admin 1", appWeb, from("Deny", everyPod, onTCP80)), banp(everyPod, from("Deny", apiOrDB, allPorts))),
		}},
		{name: "nodes get other labels and addresses, and go", states: []cluster.State{
			of(cast, host("one", "zone=a"), host("two", "zone=b"), cnp("nodes", "Admin 1", ofTeamA, to("Deny", zoneNodes, allPorts))),
			of(cast, host("one", "zone=b"), host("two", "zone=a"), cnp("nodes", "Admin 1", ofTeamA, to("Deny", zoneNodes, allPorts))),
			of(cast, host("one", "zone=a", "192.168.0.9"), host("two", "zone=a", "192.168.0.9"), cnp("nodes", "Admin 1", ofTeamA, to("Accept", zoneNodes, onTCP80), to("Deny", "{nodes: {}}", allPorts))),
			of(cast, host("two", "zone=a", "192.168.0.9"), cnp("nodes", "Admin 1", ofTeamA, to("Accept", zoneNodes, onTCP80), to("Deny", "{nodes: {}}", allPorts)), onlyAPI),
		}},
		{name: "what is passed on meets sets whose members come and go", states: []cluster.State{
			of(cast, passing(everyPod), policy("shop/web", "app=web", types(ingress, egress), in(pods("app=api")), out(podsOf("", "app in (api,web)"), port("tcp/80-9000")))),
			of(shop, town, web, relabel(backend, "app=db"), relabel(db, "app=api"), mayor, passing(everyPod), policy("shop/web", "app=web", types(ingress, egress), in(pods("app=api")), out(podsOf("", "app in (api,web)"), port("tcp/80-9000")))),
			of(shop, town, web, at(backend, "10.1.0.3"), at(db, "10.1.0.2"), mayor, passing(everyPod), policy("shop/web", "app=web", types(ingress, egress), in(pods("app=api")), out(block("10.1.0.0/31"), block("10.1.0.2/32"), port("tcp/80-9000")))),
			of(shop, town, web, backend, relabel(mayor, "app=api,env=prod"), passing(everyPod), banp(everyPod, from("Allow", prod, allPorts), from("Deny", appAPI, allPorts), to("Deny", appAPI, onTCP80Old))),
			of(shop, town, web, backend, db, mayor, passing(ofTeamB), banp(everyPod, from("Allow", prod, allPorts), from("Deny", appAPI, allPorts), to("Deny", appAPI, onTCP80Old))),
		}},
		{name: "what is passed on meets networks", states: []cluster.State{
			of(cast, cnp("passing", "Admin 1", ofTeamA, to("Pass", "{networks: [10.1.0.0/29, 'fd00::/64']}", allPorts), to("Deny", everyPod, allPorts)), policy("shop/out", "", types(egress), out(pods("app in (api,db)")))),
			of(shop, town, web, at(backend, "10.1.0.9", "fd00::2"), at(db, "10.1.0.6"), mayor, cnp("passing", "Admin 1", ofTeamA, to("Pass", "{networks: [10.1.0.0/29, 'fd00::/64']}", allPorts), to("Deny", everyPod, allPorts)), policy("shop/out", "", types(egress), out(pods("app in (api,db)")))),
			of(cast, cnp("passing", "Admin 1", ofTeamA, to("Pass", apiOrDB, allPorts), to("Deny", everyPod, allPorts)), policy("shop/out", "", types(egress), out(block("10.1.0.0/24", "10.1.0.2/32"), block("fd00::/64")))),
		}},
		// With the exemption the set of the node would have that part as well.
		{name: "one of two sets with a common part goes", denyNode: true, states: []cluster.State{
			of(cast, passing(everyPod), policy("shop/web", "app=web", in(pods(""))), policy("shop/db", "app=db", in(namespaces("team=b")))),
			of(cast, passing(everyPod), policy("shop/web", "app=web", in(pods("")))),
			of(shop, town, web, relabel(backend, "app=new"), db, mayor, passing(everyPod), policy("shop/web", "app=web", in(pods("")))),
			of(shop, town, web, relabel(backend, "app=db"), db, relabel(mayor, "app=api"), passing(everyPod), policy("shop/web", "app=web", in(pods(""))), policy("shop/db", "app=db", in(namespaces("team=b")))),
		}},
		{name: "policies of every tier come and go", states: []cluster.State{
			of(cast, banp(everyPod, from("Deny", everyPod, allPorts), to("Deny", "{networks: [10.1.0.0/31, 'fd00::/64']}", allPorts))),
			of(cast, banp(everyPod, from("Deny", everyPod, allPorts), to("Deny", "{networks: [10.1.0.0/31, 'fd00::/64']}", allPorts)), onlyAPI),
			of(cast, cnp("early", "Baseline 1000", ofTeamA, from("Accept", ofTeamB, allPorts), from("Pass", appAPI, allPorts)), banp(everyPod, from("Deny", everyPod, allPorts)), policy("shop/out", "", types(egress), out(pods("app=db")))),
			of(cast, cnp("early", "Baseline 1000", ofTeamA, from("Accept", ofTeamB, allPorts), from("Pass", appAPI, allPorts)), onlyAPI, anp("first", 0, appWeb, from("Allow", apiOrDB, allPorts), from("Pass", prod, allPorts), from("Deny", everyPod, allPorts))),
			of(cast, cnp("early", "Admin 1000", ofTeamA, from("Deny", ofTeamB, allPorts), from("Pass", appAPI, allPorts)), onlyAPI),
		}},
		{name: "port names of any protocol", states: []cluster.State{
			of(cast, anp("names", 1, everyPod, from("Deny", everyPod, onHTTPOld), to("Allow", appAPI, onHTTPOld), to("Deny", everyPod, allPorts))),
			of(shop, town, serving(web, "http=81/udp"), serving(backend, "http=80/tcp"), serving(db, "http=80/sctp"), mayor, anp("names", 1, everyPod, from("Deny", everyPod, onHTTPOld), to("Allow", appAPI, onHTTPOld), to("Deny", everyPod, allPorts))),
			of(shop, town, pod("shop/web", "app=web", "one", "10.1.0.1", "fd00::1"), backend, serving(db, "http=80/sctp"), mayor, cnp("names", "Admin 1", everyPod, to("Pass", appAPI, onHTTP), to("Deny", ofTeamA, allPorts)), policy("shop/out", "", types(egress), out(port("tcp/8080")))),
			of(shop, town, web, db, mayor, cnp("names", "Admin 1", everyPod, to("Pass", appAPI, onHTTP), to("Deny", ofTeamA, onHTTP)), banp(appWeb, from("Deny", everyPod, onHTTPOld))),
		}},
		{name: "odd rules of administrators close", states: []cluster.State{
			of(cast, cnp("odd", "Admin 1", appWeb, from("Log", appAPI, allPorts), to("Deny", "{}", onTCP80))),
			of(cast, cnp("odd", "Admin 1", appWeb, from("Accept", "{}, "+appAPI, onTCP80), to("Pass", "{networks: [10.1.0.300/24]}, "+appAPI, onTCP80))),
			of(cast, cnp("odd", "Admin 1001", appWeb, from("Deny", everyPod, allPorts)), banp(ofTeamA, to("Deny", "{networks: [10.1.0.0/16]}", onHTTPOld), to("Pass", appAPI, onTCP80Old))),
			of(cast, cnp("odd", "Admin 2", "{}", from("Deny", everyPod, allPorts)), anp("odd", 2, appWeb, from("Deny", everyPod, ", ports: []"))),
		}},
	}
}

// passing passes on what goes to and comes from pods of several selectors that overlap,
// and denies the rest.
func passing(subject string) *v1alpha2.ClusterNetworkPolicy {
	return cnp("passing", "Admin 1", subject,
		from("Pass", apiOrDB, allPorts), from("Pass", prod, onTCP80to), from("Deny", everyPod, allPorts),
		to("Accept", prod, onTCP80), to("Pass", apiOrDB+", {networks: [10.1.0.0/30]}", onTCP80to), to("Deny", everyPod+", {networks: [10.1.0.0/24]}", allPorts))
}

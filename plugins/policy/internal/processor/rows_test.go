package processor_test

import (
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// shop is the cluster most rows are about: a is the subject, local; b is another
// local pod, c is on another node, d is in another namespace.
func shop(more ...proto.Message) []proto.Message {
	return append([]proto.Message{
		ns("shop", "team=red"), ns("other", "team=blue"),
		with(pod("shop/a", "app=a", "10.0.0.1"), "web=tcp/8080"),
		with(pod("shop/b", "app=b", "10.0.0.2"), "web=tcp/8081"),
		remote(with(pod("shop/c", "app=c", "10.0.1.3"), "web=udp/8082")),
		remote(pod("other/d", "app=b", "10.0.1.4")),
	}, more...)
}

var subject = sel("app=a")

// The numbers are those of the table of semantics.
var rows = []struct {
	name     string
	objects  []proto.Message
	verdicts []string
}{
	{"1 no policy allows everything", shop(), []string{"shop/a in 10.0.0.2 tcp/80 yes", "shop/a out 8.8.8.8 icmp/0 yes"}},
	{"2 the empty podSelector selects every pod of the namespace, and a null one as well", shop(
		ingress("shop/p", sel()), egress("shop/q", nil)),
		[]string{"shop/a in 10.0.0.2 tcp/80 no", "shop/b in 10.0.0.1 tcp/80 no", "shop/b out 10.0.0.1 tcp/80 no"}},
	{"3 a policy has no effect outside its namespace", shop(ingress("other/p", sel())),
		[]string{"shop/a in 10.0.0.2 tcp/80 yes"}},
	{"4 and 5 a section of a direction that is not isolated is ignored", shop(
		&model.NetworkPolicy{Namespace: "shop", Name: "p", PodSelector: subject, IsolatesEgress: true,
			Ingress: []*model.NetworkPolicy_Rule{rule(nil)}}),
		[]string{"shop/a in 10.0.0.2 tcp/80 yes", "shop/a out 10.0.0.2 tcp/80 no"}},
	{"6 isolation without rules allows nothing", shop(ingress("shop/p", subject)),
		[]string{"shop/a in 10.0.0.2 tcp/80 no", "shop/a in 8.8.8.8 icmp/0 no", "shop/a out 8.8.8.8 tcp/80 yes"}},
	{"7 the empty rule allows everything", shop(ingress("shop/p", subject, rule(nil)), ingress("shop/q", subject)),
		[]string{"shop/a in 8.8.8.8 icmp/0 yes", "shop/a in 10.0.1.4 sctp/9 yes"}},
	{"8 no ports are all ports and no peers are all peers", shop(
		ingress("shop/p", subject, rule(peers(pods("app=b")))), egress("shop/q", subject, rule(nil, "tcp/80"))),
		[]string{"shop/a in 10.0.0.2 icmp/0 yes", "shop/a in 10.0.1.3 icmp/0 no", "shop/a out 8.8.8.8 tcp/80 yes", "shop/a out 8.8.8.8 tcp/81 no"}},
	{"9 ports and peers must match, items are alternatives", shop(
		ingress("shop/p", subject, rule(peers(pods("app=b"), pods("app=c")), "tcp/80", "udp/53")),
		ingress("shop/q", subject, rule(peers(block("8.8.8.0/24")), "tcp/99"))),
		[]string{"shop/a in 10.0.0.2 tcp/80 yes", "shop/a in 10.0.1.3 udp/53 yes", "shop/a in 10.0.0.2 udp/80 no",
			"shop/a in 8.8.8.8 tcp/99 yes", "shop/a in 10.0.0.2 tcp/99 no"}},
	{"11 podSelector is of the policy's namespace", shop(ingress("shop/p", subject, rule(peers(pods("app=b"))))),
		[]string{"shop/a in 10.0.0.2 tcp/80 yes", "shop/a in 10.0.1.4 tcp/80 no"}},
	{"11 both selectors in one item must match", shop(ingress("shop/p", subject, rule(peers(both(sel("team=blue"), sel("app=b")))))),
		[]string{"shop/a in 10.0.1.4 tcp/80 yes", "shop/a in 10.0.0.2 tcp/80 no"}},
	{"11 in two items they are alternatives", shop(ingress("shop/p", subject, rule(peers(namespaces("team=blue"), pods("app=c"))))),
		[]string{"shop/a in 10.0.1.4 tcp/80 yes", "shop/a in 10.0.1.3 tcp/80 yes", "shop/a in 10.0.0.2 tcp/80 no"}},
	{"12 the empty namespaceSelector selects all namespaces", shop(ns("kube-system", ""), pod("kube-system/dns", "", "10.0.0.53"),
		ingress("shop/p", subject, rule(peers(namespaces())))),
		[]string{"shop/a in 10.0.1.4 tcp/80 yes", "shop/a in 10.0.0.2 tcp/80 yes", "shop/a in 10.0.0.53 tcp/1 yes", "shop/a in 8.8.8.8 tcp/80 no"}},
	{"13 a peer without a field, and a block with selectors, match nothing", shop(ingress("shop/p", subject,
		rule(peers(&model.NetworkPolicy_Peer{})),
		rule(peers(&model.NetworkPolicy_Peer{PodSelector: sel(), IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "0.0.0.0/0"}})))),
		[]string{"shop/a in 10.0.0.2 tcp/80 no", "shop/a in 8.8.8.8 tcp/80 no"}},
	{"14 NotIn and DoesNotExist match without the key, Exists matches the empty value", shop(
		pod("shop/e", "app=e x=", "10.0.0.5"),
		ingress("shop/p", subject, rule(peers(pods("x!1")), "tcp/1"), rule(peers(pods("!x")), "tcp/2"), rule(peers(pods("x")), "tcp/3"), rule(peers(pods("x=")), "tcp/4"))),
		[]string{"shop/a in 10.0.0.2 tcp/1 yes", "shop/a in 10.0.0.2 tcp/2 yes", "shop/a in 10.0.0.2 tcp/3 no", "shop/a in 10.0.0.2 tcp/4 no",
			"shop/a in 10.0.0.5 tcp/1 yes", "shop/a in 10.0.0.5 tcp/2 no", "shop/a in 10.0.0.5 tcp/3 yes", "shop/a in 10.0.0.5 tcp/4 yes"}},
	{"15 an invalid selector matches nothing", shop(ingress("shop/p", subject, rule(peers(&model.NetworkPolicy_Peer{PodSelector: &model.LabelSelector{
		MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app"}}}})))),
		[]string{"shop/a in 10.0.0.2 tcp/80 no"}},
	{"15b a policy whose own selector is invalid isolates its namespace", shop(ingress("shop/p", &model.LabelSelector{
		MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app"}}}, rule(nil))),
		[]string{"shop/a in 10.0.0.2 tcp/80 no", "shop/b in 10.0.1.4 tcp/80 no", "shop/b out 10.0.1.4 tcp/80 yes"}},
	{"16 the name label is always there", []proto.Message{&model.Namespace{Name: "shop"}, &model.Namespace{Name: "other"},
		pod("shop/a", "app=a", "10.0.0.1"), pod("other/d", "", "10.0.1.4"),
		ingress("shop/p", subject, rule(peers(namespaces("kubernetes.io/metadata.name=other"))))},
		[]string{"shop/a in 10.0.1.4 tcp/80 yes", "shop/a in 10.0.0.1 tcp/80 no"}},
	{"19 and 20 a protocol without port is all its ports", shop(ingress("shop/p", subject, rule(nil, "tcp"))),
		[]string{"shop/a in 8.8.8.8 tcp/1 yes", "shop/a in 8.8.8.8 tcp/65535 yes", "shop/a in 8.8.8.8 udp/1 no"}},
	{"21 endPort is inclusive", shop(ingress("shop/p", subject, rule(nil, "tcp/80-82"))),
		[]string{"shop/a in 8.8.8.8 tcp/79 no", "shop/a in 8.8.8.8 tcp/80 yes", "shop/a in 8.8.8.8 tcp/82 yes", "shop/a in 8.8.8.8 tcp/83 no"}},
	{"21 an inverted range matches nothing", shop(ingress("shop/p", subject, rule(nil, "tcp/82-80"))),
		[]string{"shop/a in 8.8.8.8 tcp/81 no", "shop/a in 8.8.8.8 tcp/82 no"}},
	{"22 an ingress name is the subject's port", shop(ingress("shop/p", sel(), rule(nil, "tcp/web"))),
		[]string{"shop/a in 8.8.8.8 tcp/8080 yes", "shop/a in 8.8.8.8 tcp/8081 no", "shop/b in 8.8.8.8 tcp/8081 yes", "shop/b in 8.8.8.8 tcp/8080 no"}},
	{"22 an egress name is the peer's port", shop(egress("shop/p", subject, rule(peers(pods()), "tcp/web"))),
		[]string{"shop/a out 10.0.0.1 tcp/8080 yes", "shop/a out 10.0.0.2 tcp/8081 yes", "shop/a out 10.0.0.2 tcp/8080 no", "shop/a out 10.0.1.3 tcp/8082 no"}},
	{"22 an egress name without peers is any pod that has it", shop(with(pod("other/e", "", "10.0.0.9"), "web=tcp/9000"),
		egress("shop/p", subject, rule(nil, "tcp/web", "udp/53"))),
		[]string{"shop/a out 10.0.0.9 tcp/9000 yes", "shop/a out 10.0.0.2 tcp/8081 yes", "shop/a out 10.0.0.9 tcp/8081 no", "shop/a out 8.8.8.8 tcp/8081 no", "shop/a out 8.8.8.8 udp/53 yes"}},
	{"23 a name that nobody has matches nothing", shop(ingress("shop/p", subject, rule(nil, "tcp/none")), egress("shop/q", subject, rule(nil, "tcp/none"))),
		[]string{"shop/a in 8.8.8.8 tcp/8080 no", "shop/a out 10.0.0.2 tcp/8081 no"}},
	{"24 an egress name with a block means the pods in the block", shop(egress("shop/p", subject, rule(peers(block("10.0.0.0/24", "10.0.0.1/32")), "tcp/web"))),
		[]string{"shop/a out 10.0.0.2 tcp/8081 yes", "shop/a out 10.0.0.1 tcp/8080 no", "shop/a out 10.0.0.77 tcp/8081 no"}},
	{"24 an ingress name with a block works", shop(ingress("shop/p", subject, rule(peers(block("8.8.8.0/24")), "tcp/web"))),
		[]string{"shop/a in 8.8.8.8 tcp/8080 yes", "shop/a in 10.0.0.2 tcp/8080 no"}},
	{"25 the protocol selects among equal names", shop(with(pod("shop/e", "app=e", "10.0.0.5"), "dns=tcp/53", "dns=udp/5353"),
		ingress("shop/p", sel("app=e"), rule(nil, "udp/dns"))),
		[]string{"shop/e in 8.8.8.8 udp/5353 yes", "shop/e in 8.8.8.8 tcp/53 no", "shop/e in 8.8.8.8 udp/53 no"}},
	{"26 two containers may give one name to two ports", shop(with(pod("shop/e", "app=e", "10.0.0.5"), "web=tcp/80", "web=tcp/81"),
		ingress("shop/p", sel("app=e"), rule(nil, "tcp/web")), egress("shop/q", subject, rule(peers(pods("app=e")), "tcp/web"))),
		[]string{"shop/e in 8.8.8.8 tcp/80 yes", "shop/e in 8.8.8.8 tcp/81 yes", "shop/a out 10.0.0.5 tcp/80 yes", "shop/a out 10.0.0.5 tcp/81 yes"}},
	{"28 an SCTP rule does not open TCP", shop(ingress("shop/p", subject, rule(nil, "sctp/80"))),
		[]string{"shop/a in 8.8.8.8 tcp/80 no", "shop/a in 8.8.8.8 sctp/80 yes"}},
	{"30 and 31 an exception is a hole, not a deny", shop(ingress("shop/p", subject,
		rule(peers(block("10.0.0.0/8", "10.0.0.0/24"))), rule(peers(block("10.0.0.2/32")), "tcp/80"))),
		[]string{"shop/a in 10.0.1.3 tcp/1 yes", "shop/a in 10.0.0.3 tcp/1 no", "shop/a in 10.0.0.2 tcp/80 yes", "shop/a in 10.0.0.2 tcp/81 no"}},
	{"33 a block is of one family", shop(ingress("shop/p", subject, rule(peers(block("0.0.0.0/0")), "tcp/4"), rule(peers(block("::/0")), "tcp/6"))),
		[]string{"shop/a in 8.8.8.8 tcp/4 yes", "shop/a in 8.8.8.8 tcp/6 no", "shop/a in fd00::1 tcp/6 yes", "shop/a in fd00::1 tcp/4 no"}},
	{"34 stored blocks are read leniently", shop(ingress("shop/p", subject,
		rule(peers(block("10.0.0.5/24")), "tcp/1"), rule(peers(block("010.000.001.000/24")), "tcp/2"), rule(peers(block("::ffff:10.2.0.0/112")), "tcp/3"))),
		[]string{"shop/a in 10.0.0.2 tcp/1 yes", "shop/a in 10.0.1.3 tcp/2 yes", "shop/a in 10.2.0.1 tcp/3 yes", "shop/a in 10.3.0.1 tcp/3 no"}},
	{"36 overlapping blocks are a union", shop(ingress("shop/p", subject, rule(peers(block("10.0.0.0/24", "10.0.0.2/32"), block("10.0.0.0/30"), block("10.0.0.0/30"))))),
		[]string{"shop/a in 10.0.0.2 tcp/1 yes", "shop/a in 10.0.0.200 tcp/1 yes"}},
	{"41 pods with hostNetwork are no peers", shop(change(pod("shop/h", "app=h", "192.168.0.1"), func(p *model.Pod) { p.HostNetwork = true }),
		ingress("shop/p", subject, rule(peers(pods())))),
		[]string{"shop/a in 192.168.0.1 tcp/1 no", "shop/a in 10.0.0.2 tcp/1 yes"}},
	{"42 finished pods are no peers", shop(change(pod("shop/f", "app=f", "10.0.0.7"), func(p *model.Pod) { p.Phase = model.Pod_PHASE_SUCCEEDED }),
		change(pod("shop/g", "app=f", "10.0.0.8"), func(p *model.Pod) { p.Phase = model.Pod_PHASE_FAILED }),
		ingress("shop/p", subject, rule(peers(pods())))),
		[]string{"shop/a in 10.0.0.7 tcp/1 no", "shop/a in 10.0.0.8 tcp/1 no"}},
	{"43 pods that are being deleted are subjects and peers", shop(
		change(pod("shop/t", "app=a", "10.0.0.7"), func(p *model.Pod) { p.Deleting = true }), ingress("shop/p", subject, rule(peers(pods("app=a"))))),
		[]string{"shop/a in 10.0.0.7 tcp/1 yes", "shop/t in 10.0.0.2 tcp/1 no"}},
	{"46 every address of a pod is subject and peer", shop(pod("shop/six", "app=six", "10.0.0.6", "fd00::6"),
		ingress("shop/p", subject, rule(peers(pods("app=six"))))),
		[]string{"shop/a in 10.0.0.6 tcp/1 yes", "shop/a in fd00::6 tcp/1 yes", "shop/a in fd00::7 tcp/1 no"}},
}

func TestSemantics(t *testing.T) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			forwards := newWorld(t, n1)
			forwards.resync(row.objects...)
			forwards.expect(row.verdicts...)
			backwards := newWorld(t, n1)
			for _, m := range slices.Backward(row.objects) {
				backwards.apply(m)
			}
			backwards.expect(row.verdicts...)
			check(t, backwards, n1, 1)
		})
	}
}

func TestProcessorRow17TakesNamespacesLater(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(pod("shop/a", "app=a", "10.0.0.1"), pod("other/d", "", "10.0.1.4"),
		ingress("shop/p", sel(), rule(peers(namespaces()), "tcp/1"), rule(peers(namespaces("team=blue")), "tcp/2"), rule(peers(namespaces("!team")), "tcp/3")))
	w.expect("shop/a in 10.0.1.4 tcp/1 no", "shop/a in 10.0.1.4 tcp/2 no", "shop/a in 10.0.1.4 tcp/3 no")
	w.apply(ns("other", "team=blue"))
	w.expect("shop/a in 10.0.1.4 tcp/1 yes", "shop/a in 10.0.1.4 tcp/2 yes", "shop/a in 10.0.1.4 tcp/3 no")
	w.apply(ns("other", ""))
	w.expect("shop/a in 10.0.1.4 tcp/1 yes", "shop/a in 10.0.1.4 tcp/2 no", "shop/a in 10.0.1.4 tcp/3 yes")
	w.remove(ns("other", ""))
	w.expect("shop/a in 10.0.1.4 tcp/1 no", "shop/a in 10.0.1.4 tcp/3 no")
}

func TestProcessorRow18FollowsLabelsInBothRoles(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(ingress("shop/p", sel("app=a"), rule(peers(pods("app=b")))))...)
	w.apply(pod("shop/b", "app=x", "10.0.0.2"), remote(pod("shop/c", "app=b", "10.0.1.3")))
	w.expect("shop/a in 10.0.0.2 tcp/1 no", "shop/a in 10.0.1.3 tcp/1 yes")
	w.apply(pod("shop/a", "app=free", "10.0.0.1"), pod("shop/b", "app=a", "10.0.0.2"))
	w.expect("shop/a in 8.8.8.8 tcp/1 yes", "shop/b in 8.8.8.8 tcp/1 no")
}

func TestProcessorRow39NodeSetHoldsNodeAddresses(t *testing.T) {
	w := newWorld(t, n1)
	node := func(ips ...string) {
		t.Helper()
		var want []netip.Addr
		for _, ip := range ips {
			want = append(want, netip.MustParseAddr(ip))
		}
		if got := w.proc.Members(api.NodeSet); !slices.Equal(got, want) || len(w.sink.sets[api.NodeSet]) != len(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	w.apply(remote(pod("shop/c", "", "10.0.1.3")))
	node()
	w.apply(pod("shop/a", "", "10.0.0.1"), pod("shop/b", "", "10.0.0.2"))
	node("192.168.0.1")
	w.apply(change(pod("shop/b", "", "10.0.0.2"), func(p *model.Pod) { p.NodeIps = []string{"192.168.0.1", "fd01::1"} }))
	node("192.168.0.1", "fd01::1")
	w.remove(pod("shop/a", ""))
	node("192.168.0.1", "fd01::1")
	w.remove(pod("shop/b", ""))
	node()
}

func TestProcessorRow44PostponesPodsWithoutAddress(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(pod("shop/a", "app=a"), ingress("shop/p", sel()))
	if len(w.sink.pods) != 0 || len(w.proc.Sets()) != 1 {
		t.Errorf("a pod without an address is configured: %s", w.sink.describe())
	}
	w.apply(pod("shop/a", "app=a", "10.0.0.1"))
	w.expect("shop/a in 8.8.8.8 tcp/80 no")
	w.apply(pod("shop/a", "app=a"))
	if len(w.sink.pods) != 0 {
		t.Errorf("a pod that lost its address is still configured")
	}
}

func TestProcessorRow45ReusedAddressInheritsNothing(t *testing.T) {
	start := shop(ingress("shop/p", sel("app=a"), rule(peers(pods("app=b")))))
	heir := pod("shop/heir", "app=z", "10.0.0.2")
	t.Run("in one batch", func(t *testing.T) {
		w := newWorld(t, n1)
		w.apply(start...)
		w.update(model.Changes{Deltas: []model.Delta{{ID: mustID(t, heir), Value: heir}, {ID: mustID(t, pod("shop/b", ""))}}})
		w.expect("shop/a in 10.0.0.2 tcp/1 no")
	})
	t.Run("the heir comes first", func(t *testing.T) {
		w := newWorld(t, n1)
		w.apply(start...)
		w.apply(heir)
		w.expect("shop/a in 10.0.0.2 tcp/1 yes") // b still has it
		w.remove(pod("shop/b", ""))
		w.expect("shop/a in 10.0.0.2 tcp/1 no")
	})
	t.Run("two members share it", func(t *testing.T) {
		w := newWorld(t, n1)
		w.apply(start...)
		w.apply(pod("shop/b2", "app=b", "10.0.0.2"))
		calls := w.sink.calls
		w.remove(pod("shop/b2", ""))
		w.expect("shop/a in 10.0.0.2 tcp/1 yes")
		if w.sink.calls != calls+1 { // Remove of b2
			t.Errorf("%d calls", w.sink.calls-calls)
		}
		w.remove(pod("shop/b", ""))
		w.expect("shop/a in 10.0.0.2 tcp/1 no")
	})
}

func TestProblemsOfInvalidFieldsAreReportedOnce(t *testing.T) {
	bad := ingress("shop/p", sel("app=a"),
		rule(peers(&model.NetworkPolicy_Peer{}, block("10.0.0.0/33"), block("10.0.0.0/24", "10.1.0.0/16"))),
		rule(nil, "tcp/none-0"))
	bad.Ingress[1].Ports[0].Invalid = true
	worse := ingress("shop/q", sel("app=a"))
	worse.PodSelector.MatchExpressions = []*model.LabelSelector_Requirement{{Key: "x", Operator: model.LabelSelector_OPERATOR_IN}}
	want := []string{
		"NetworkPolicy shop/p spec.ingress[0].from[0]",
		"NetworkPolicy shop/p spec.ingress[0].from[1].ipBlock.cidr",
		"NetworkPolicy shop/p spec.ingress[0].from[2].ipBlock.except[0]",
		"NetworkPolicy shop/p spec.ingress[1].ports[0]",
		"NetworkPolicy shop/q ",
	}
	w := newWorld(t, n1)
	w.apply(shop(bad, worse)...)
	if got := w.problems(); !slices.Equal(got, want) || len(w.found) != len(want) {
		t.Errorf("got %q", got)
	}
	w.apply(bad)
	if len(w.found) != 0 {
		t.Errorf("reported again: %v", w.found)
	}
	w.remove(bad)
	w.remove(worse)
	if got := w.problems(); len(got) != 0 {
		t.Errorf("left over: %q", got)
	}
}

package processor_test

import (
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Bugs of an earlier system of this kind. The numbers are those in the list of its bugs.

// bothWays returns a policy with rules in both directions.
func bothWays(id string, peer *model.NetworkPolicy_Peer) *model.NetworkPolicy {
	p := ingress(id, sel("app=a"), rule(peers(peer)))
	p.IsolatesEgress, p.Egress = true, p.Ingress
	return p
}

func TestProcessorB4AllowsNewPeersInBothDirections(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(bothWays("shop/p", pods("app:b|new")))...)
	w.apply(remote(pod("shop/new", "app=new", "10.0.1.9")))
	w.expect("shop/a in 10.0.1.9 tcp/1 yes", "shop/a out 10.0.1.9 tcp/1 yes")
}

func TestProcessorB5DeniesReusedAddressOfFormerPeer(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(bothWays("shop/p", pods("app=b")))...)
	w.remove(pod("shop/b", ""))
	w.apply(remote(pod("shop/x", "app=x", "10.0.0.2")))
	w.expect("shop/a in 10.0.0.2 tcp/1 no", "shop/a out 10.0.0.2 tcp/1 no")
}

func TestProcessorB6OpensPodNoLongerSelected(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(ingress("shop/p", sel("app=a")))...)
	w.expect("shop/a in 8.8.8.8 tcp/1 no")
	w.apply(pod("shop/a", "app=other", "10.0.0.1"))
	w.expect("shop/a in 8.8.8.8 tcp/1 yes")
}

func TestProcessorB7RemovesPeersWithNamespaceLabel(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(bothWays("shop/late", namespaces("team=blue")))...)
	w.expect("shop/a in 10.0.1.4 tcp/1 yes")
	w.apply(ns("other", ""))
	w.expect("shop/a in 10.0.1.4 tcp/1 no", "shop/a out 10.0.1.4 tcp/1 no")
}

func TestProcessorB8TakesPodsBeforeNamespace(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(bothWays("shop/late", namespaces("team=blue")))
	w.apply(pod("shop/a", "app=a", "10.0.0.1"))
	w.apply(pod("other/d", "", "10.0.1.4"))
	w.expect("shop/a in 10.0.1.4 tcp/1 no")
	w.apply(ns("other", "team=blue"))
	w.expect("shop/a in 10.0.1.4 tcp/1 yes")
}

func TestProcessorB10IgnoresUnknownIngressPortName(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(ingress("shop/p", sel("app=a"), rule(nil, "tcp/metrics")))...)
	w.expect("shop/a in 8.8.8.8 tcp/8080 no", "shop/a in 8.8.8.8 tcp/1 no")
}

func TestProcessorB11OpensOnlyNamedEgressPort(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(egress("shop/p", sel("app=a"), rule(peers(pods("app=b")), "tcp/web")))...)
	w.expect("shop/a out 10.0.0.2 tcp/8081 yes", "shop/a out 10.0.0.2 tcp/1 no", "shop/a out 10.0.0.2 udp/8081 no")
	w.apply(egress("shop/p", sel("app=a"), rule(nil, "tcp/web")))
	w.expect("shop/a out 10.0.0.2 tcp/8081 yes", "shop/a out 10.0.0.2 tcp/1 no", "shop/a out 8.8.8.8 tcp/8081 no")
}

func TestProcessorB12ResolvesPortNamePerPod(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(ingress("shop/p", sel(), rule(nil, "tcp/web")))...)
	w.expect("shop/a in 8.8.8.8 tcp/8080 yes", "shop/a in 8.8.8.8 tcp/8081 no", "shop/b in 8.8.8.8 tcp/8081 yes", "shop/b in 8.8.8.8 tcp/8080 no")
}

func TestProcessorB13ResolvesPortNamePerProtocol(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(with(pod("shop/u", "", "10.0.0.1"), "web=udp/80"), ingress("shop/p", sel(), rule(nil, "tcp/web")))
	w.expect("shop/u in 8.8.8.8 tcp/80 no", "shop/u in 8.8.8.8 udp/80 no")
}

func TestProcessorB14TreatsNamespacesAlike(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(ns("kube-system", ""), pod("kube-system/x", "", "10.0.1.9"), ingress("shop/p", sel("app=a"), rule(peers(namespaces()))))...)
	w.expect("shop/a in 10.0.1.9 tcp/1 yes")
}

func TestProcessorB15ConfiguresRecreatedPod(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(ingress("shop/p", sel("app=a")))...)
	w.remove(pod("shop/a", ""))
	if _, ok := w.sink.pods[api.PodID{Namespace: "shop", Name: "a"}]; ok {
		t.Error("the pod was not removed")
	}
	w.apply(pod("shop/a", "app=a", "10.0.0.99"))
	w.expect("shop/a in 8.8.8.8 tcp/1 no")
}

func TestProcessorB16IsolatesPodAfterEmptyResync(t *testing.T) {
	w := newWorld(t, n1)
	objects := shop(ingress("shop/p", sel("app=a")))
	w.resync(objects...)
	w.resync(ingress("shop/p", sel("app=a")))
	if len(w.sink.pods) != 0 || len(w.sink.sets) != 0 {
		t.Errorf("left over: %s", w.sink.describe())
	}
	w.resync(objects...)
	w.expect("shop/a in 8.8.8.8 tcp/1 no", "shop/b in 8.8.8.8 tcp/1 yes")
}

func TestProcessorB17TakesEgressIsolationFromModel(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(bothWays("shop/p", pods("app=b")))...)
	w.expect("shop/a out 10.0.0.2 tcp/1 yes", "shop/a out 8.8.8.8 tcp/1 no")
}

func TestPortNameNumbersFollowPods(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(shop(egress("shop/p", sel("app=a"), rule(peers(pods("app=b")), "tcp/web")), ingress("shop/q", sel("app=b")))...)
	b := w.sink.pods[api.PodID{Namespace: "shop", Name: "b"}]
	w.apply(remote(with(pod("shop/b2", "app=b", "10.0.1.9"), "web=tcp/9999")))
	w.expect("shop/a out 10.0.1.9 tcp/9999 yes", "shop/a out 10.0.0.2 tcp/9999 no")
	if got := w.sink.pods[api.PodID{Namespace: "shop", Name: "b"}]; !sameList(got.list, b.list) {
		t.Error("a pod whose policies mean the same got another list")
	}
	calls := w.sink.calls
	w.apply(remote(with(pod("shop/b3", "app=b x=1", "10.0.1.10"), "web=tcp/9999")))
	if w.sink.calls != calls+1 {
		t.Errorf("%d calls for a pod with a known number, want one set", w.sink.calls-calls)
	}
	w.remove(pod("shop/b2", ""), pod("shop/b3", ""))
	w.expect("shop/a out 10.0.1.9 tcp/9999 no")
	if n := len(w.proc.Sets()); n != 2 { // the node's and that of 8081
		t.Errorf("%d sets: %v", n, w.proc.Sets())
	}
}

func TestProcessorLeavesNothing(t *testing.T) {
	w := newWorld(t, n1)
	for i := range 50 {
		peer := both(sel("team=blue"), sel("app!x"))
		if i%2 == 0 {
			peer = pods("app:b|c")
		}
		w.apply(shop(bothWays("shop/p", peer), egress("shop/q", sel(), rule(nil, "tcp/web")))...)
		w.resync()
	}
	if len(w.proc.Sets()) != 1 || len(w.sink.pods) != 0 || len(w.cache.Pods()) != 0 || len(w.cache.Namespaces()) != 0 || len(w.cache.PolicySpecs()) != 0 {
		t.Errorf("left over: %v %v %v", w.proc.Sets(), w.cache.Pods(), w.cache.Namespaces())
	}
}

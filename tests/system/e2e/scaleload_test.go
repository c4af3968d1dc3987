package e2e

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/api/model"
)

const (
	scaleNamespaces = 50
	scaleNodes      = 2   // with the whole pipeline
	scaleLocal      = 10  // pods of each of these, all selected by policies
	scaleMachines   = 200 // other nodes, which the other pods are on
	scaleWorkers    = 16
)

func scaleNamespace(i int) string { return fmt.Sprintf("team-%02d", i%scaleNamespaces) }

// machineOf returns the node of a pod.
func machineOf(i int) string {
	if i < scaleNodes*scaleLocal {
		return fmt.Sprintf("node-%d", i%scaleNodes)
	}
	return fmt.Sprintf("machine-%d", i%scaleMachines)
}

// policies writes one policy per namespace, whose peers are pods of all namespaces: a
// pod that comes changes an address set on every node.
func (s *scale) policies() {
	for i := range scaleNamespaces {
		ns := scaleNamespace(i)
		s.cluster.apply(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, ns))
		s.cluster.apply(fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: %s},
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: app-%d}}}], ports: [{port: 80}]}]}}`, ns, i%10))
	}
}

// machines makes nodes with addresses that send a heartbeat every 10 s, until the test ends.
func (s *scale) machines() {
	s.t.Helper()
	for i := range scaleMachines {
		name := fmt.Sprintf("machine-%d", i)
		if _, err := s.cluster.of("Node", "").Create(s.t.Context(), object("Node", "", name), metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
		if err := s.status("Node", "", name, map[string]any{
			"addresses": []any{map[string]any{"type": "InternalIP", "address": fmt.Sprintf("192.168.%d.%d", i>>8, i&255)}}, "conditions": conditions("lastHeartbeatTime", "Ready"),
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	go func() { // each of them every 10 s
		tick := time.NewTicker(10 * time.Second / scaleMachines)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				_ = s.status("Node", "", fmt.Sprintf("machine-%d", i%scaleMachines), map[string]any{"conditions": conditions("lastHeartbeatTime", "Ready")}) // the next one will do
			case <-s.t.Context().Done():
				return
			}
		}
	}()
}

// conditions are what a kubelet says of a pod or a node that is well, with the time in a
// field.
func conditions(field string, kinds ...string) (out []any) {
	now := time.Now().UTC().Format(time.RFC3339)
	for _, kind := range kinds {
		out = append(out, map[string]any{"type": kind, "status": "True", "lastTransitionTime": now, field: now})
	}
	return out
}

// status writes the status of an object.
func (s *scale) status(kind, namespace, name string, status map[string]any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.cluster.of(kind, namespace).Patch(s.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// pod writes a pod and gives it the status that a kubelet gives it, with an address. What
// is measured begins before the second request: the pod counts once it has an address.
func (s *scale) pod(i int) error {
	ns, name := scaleNamespace(i), fmt.Sprintf("pod-%06d", i)
	o := object("Pod", ns, name)
	o.SetLabels(map[string]string{"app": fmt.Sprintf("app-%d", i%10), "pod-template-hash": "5d78c9869d", "version": "v1"})
	o.Object["spec"] = map[string]any{"nodeName": machineOf(i), "containers": []any{map[string]any{
		"name": "main", "image": "registry.example/app:1", "ports": []any{map[string]any{"name": "http", "containerPort": int64(80)}},
	}}}
	if _, err := s.cluster.of("Pod", ns).Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	status := map[string]any{
		"phase": "Running", "podIP": ip, "podIPs": []any{map[string]any{"ip": ip}}, "hostIP": "192.168.0.1", "hostIPs": []any{map[string]any{"ip": "192.168.0.1"}},
		"startTime": now, "conditions": conditions("lastProbeTime", "PodScheduled", "Initialized", "ContainersReady", "Ready"),
		"containerStatuses": []any{map[string]any{
			"name": "main", "image": "registry.example/app:1", "imageID": "registry.example/app@sha256:0", "ready": true, "started": true, "restartCount": int64(0),
			"state": map[string]any{"running": map[string]any{"startedAt": now}},
		}},
	}
	s.ask(ns + "/" + name)
	err := s.status("Pod", ns, name, status)
	s.note(ns+"/"+name, func(c *journey) *time.Time { return &c.answered })
	return err
}

// burst creates pods as fast as the API server takes them.
func (s *scale) burst(from, to int) {
	s.t.Helper()
	var next, failures atomic.Int64
	next.Store(int64(from))
	var running sync.WaitGroup
	for range scaleWorkers {
		running.Go(func() {
			for i := int(next.Add(1) - 1); i < to; i = int(next.Add(1) - 1) {
				if err := s.pod(i); err != nil {
					failures.Add(1)
				}
			}
		})
	}
	running.Wait()
	if n := failures.Load(); n > 0 {
		s.t.Fatalf("%d pods could not be made", n)
	}
}

// full waits until etcd holds so many pods with an address.
func (s *scale) full(n int) {
	s.t.Helper()
	err := pollFor(5*time.Minute, func() error {
		entries, _, err := s.state.List(s.t.Context(), model.Root(model.DefaultPrefix)+"pod/")
		got := 0
		for _, e := range entries {
			if _, ok := addressed(e); ok {
				got++
			}
		}
		if got != n {
			return fmt.Errorf("etcd holds %d of %d pods: %w", got, n, err)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// churn makes and removes pods at the rate, oldest first.
func (s *scale) churn(rate int, d time.Duration, first int) {
	s.t.Helper()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var running sync.WaitGroup
	limit := make(chan struct{}, scaleWorkers)
	var failures atomic.Int64
	for i := range int(d.Seconds() * float64(rate)) {
		<-tick.C
		limit <- struct{}{}
		running.Go(func() {
			defer func() { <-limit }()
			if err := s.pod(first + i); err != nil {
				failures.Add(1)
			}
			if old := first + i - 10*rate; old >= first {
				now := int64(0)
				_ = s.cluster.of("Pod", scaleNamespace(old)).Delete(s.t.Context(), fmt.Sprintf("pod-%06d", old), metav1.DeleteOptions{GracePeriodSeconds: &now})
			}
		})
	}
	running.Wait()
	if n := failures.Load(); n > 0 {
		s.t.Errorf("%d changes failed", n)
	}
}

package kube

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Backoff of failed lists and watches: it is short, because policy is outdated meanwhile.
const (
	minWait = 200 * time.Millisecond
	maxWait = 5 * time.Second
)

// follow lists and watches a kind until the context ends.
func (s *Source) follow(ctx context.Context, r resource) {
	reflector := cache.NewReflectorWithOptions(s.watched(r), r.expected(), &passThroughStore{s, r.kind}, cache.ReflectorOptions{
		Name:    r.plural,
		Backoff: &wait.Backoff{Duration: minWait, Factor: 2, Jitter: 0.5, Steps: 6, Cap: maxWait},
	})
	reflector.RunWithContext(ctx)
}

// watched wraps the lists and watches of a kind: it strips their results and records errors.
func (s *Source) watched(r resource) *cache.ListWatch {
	inner := s.clients.lister(r)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			s.heard(r.kind, err)
			if err == nil {
				stripList(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			s.heard(r.kind, err)
			return w, err
		},
	}
}

// passThroughStore is the store of one client-go reflector: it stores nothing and passes everything
// on. The reflector calls it from one goroutine.
type passThroughStore struct {
	*Source
	kind model.Kind
}

var _ cache.TransformingStore = (*passThroughStore)(nil)

// Transformer implements cache.TransformingStore: a streamed list is stripped while it is
// collected.
func (*passThroughStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		strip(obj)
		return obj, nil
	}
}

// Add implements cache.ReflectorStore.
func (s *passThroughStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *passThroughStore) Update(obj any) error {
	id, ok := s.idOf(obj)
	if !ok {
		return fmt.Errorf("%T is no %s", obj, s.kind)
	}
	s.event(1)
	msg, problems := messageOf(id, obj)
	s.report(id, problems)
	if msg != nil {
		s.notePolicy(id, obj, msg, false, problems)
		return s.cfg.Sink.Put(msg)
	}
	instead := refused(id, obj, problems)
	s.notePolicy(id, obj, instead, true, problems)
	return s.cfg.Sink.Keep(id, instead)
}

func (s *passThroughStore) notePolicy(id model.ID, obj any, value proto.Message, refused bool, problems []api.Problem) {
	if policy, ok := clusterPolicyOf(id, obj, value, refused, problems); ok {
		s.changePolicies(func(p *clusterPolicies) { p.all[policy.Name] = policy })
	}
}

// Delete implements cache.ReflectorStore.
func (s *passThroughStore) Delete(obj any) error {
	id, ok := s.idOf(obj)
	if !ok {
		return fmt.Errorf("%T is no %s", obj, s.kind)
	}
	s.event(1)
	s.report(id, nil)
	if s.kind == model.KindClusterNetworkPolicy {
		s.changePolicies(func(p *clusterPolicies) { delete(p.all, id.Name) })
	}
	s.cfg.Sink.Delete(id)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *passThroughStore) Replace(list []any, _ string) error {
	if err := s.same(); err != nil {
		s.heard(s.kind, err)
		return err
	}
	values := make([]proto.Message, 0, len(list))
	keep := map[model.ID]proto.Message{}
	ids := make(map[model.ID]bool, len(list))
	policies := map[string]ClusterPolicy{}
	for i, obj := range list {
		list[i] = nil // release the memory
		id, ok := s.idOf(obj)
		if !ok {
			return fmt.Errorf("%T is no %s", obj, s.kind)
		}
		ids[id] = true
		msg, problems := messageOf(id, obj)
		s.report(id, problems)
		if msg == nil {
			keep[id] = refused(id, obj, problems)
		} else {
			values = append(values, msg)
		}
		if p, ok := clusterPolicyOf(id, obj, cmp.Or(msg, keep[id]), msg == nil, problems); ok {
			policies[p.Name] = p
		}
	}
	if s.kind == model.KindClusterNetworkPolicy {
		s.changePolicies(func(p *clusterPolicies) { p.all = policies })
	}
	s.event(len(list))
	s.forget(s.kind, ids)
	if err := s.cfg.Sink.Replace(s.kind, values, keep); err != nil {
		return err
	}
	s.updateStatus(s.kind, func(k *KindStatus) { k.Synced = true })
	s.hasAnswered()
	return nil
}

// Resync implements cache.ReflectorStore. It is unused.
func (s *passThroughStore) Resync() error { return nil }

func (s *passThroughStore) event(n int) {
	if s.cfg.OnEvent != nil {
		for range n {
			s.cfg.OnEvent(s.kind)
		}
	}
}

// idOf returns the ID of an object at the API server.
func (s *passThroughStore) idOf(obj any) (model.ID, bool) {
	meta, ok := obj.(metav1.Object)
	if !ok {
		return model.ID{}, false
	}
	id := model.ID{Kind: s.kind, Name: meta.GetName()}
	if s.kind.Namespaced() {
		id.Namespace = meta.GetNamespace()
	}
	return id, true
}

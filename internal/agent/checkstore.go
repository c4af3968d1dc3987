package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/plugins/follow"
	"github.com/sluice-net/sluice/plugins/ksr"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// storeCheck asks etcd. Its checks are made in their order: the first connects, and those that
// follow find nothing when it could not.
type storeCheck struct {
	cfg   Config
	store *kvstore.Client // nil without a connection
}

func (s *storeCheck) checks() []preflight.Check {
	return []preflight.Check{
		{Name: "etcd", Find: s.connect},
		{Name: "reflector", Find: s.asked(s.reflector)},
		{Name: "state in etcd", Find: s.asked(s.state)},
		{Name: "node in etcd", Find: s.asked(s.node)},
	}
}

func (s *storeCheck) close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

func (s *storeCheck) connect(ctx context.Context) preflight.Finding {
	etcd, err := s.cfg.Etcd.Client()
	if err != nil {
		return preflight.Finding{} // the check of settings says so
	}
	etcd.DialTimeout, etcd.CallTimeout = storeTime, storeTime/2
	store, err := kvstore.Dial(ctx, etcd, slog.New(slog.DiscardHandler))
	switch {
	case errors.Is(err, kvstore.ErrUnavailable):
		return preflight.Warn(err, "start etcd, or name its members with --etcd-endpoints; until it answers, the agent enforces what --state-file has")
	case err != nil:
		return preflight.Fail(err, "see --etcd-user, --etcd-cert and --etcd-ca")
	}
	s.store = store
	return preflight.Fine("%s", strings.Join(s.cfg.Etcd.Endpoints, ", "))
}

// asked makes a check of a question to etcd.
func (s *storeCheck) asked(question func(context.Context) (preflight.Finding, error)) func(context.Context) preflight.Finding {
	return func(ctx context.Context) preflight.Finding {
		if s.store == nil {
			return preflight.Finding{}
		}
		f, err := question(ctx)
		switch {
		case err == nil:
			return f
		case errors.Is(err, kvstore.ErrUnavailable):
			return preflight.Warn(err, "")
		}
		return preflight.Fail(err, fmt.Sprintf("grant the user of the agent read below %s/, see docs/guide/ksr.md", s.cfg.EtcdPrefix))
	}
}

func (s *storeCheck) reflector(ctx context.Context) (preflight.Finding, error) {
	revision, err := s.store.Revision(ctx, model.LeaderKey(s.cfg.EtcdPrefix))
	if err != nil || revision > 0 {
		return preflight.Fine("it writes below %s/", s.cfg.EtcdPrefix), err
	}
	return preflight.Warn(fmt.Errorf("no active reflector below %s/; state may be stale", s.cfg.EtcdPrefix),
		"start sluice-ksr with the same --etcd-prefix and --etcd-endpoints"), nil
}

func (s *storeCheck) state(ctx context.Context) (preflight.Finding, error) {
	root := model.Root(s.cfg.EtcdPrefix)
	revision, err := s.store.Newest(ctx, root)
	if err != nil || revision > 0 {
		return preflight.Fine("revision %d below %s", revision, root), err
	}
	return preflight.Warn(fmt.Errorf("there is no state below %s", root), "start sluice-ksr, or see --etcd-prefix"), nil
}

func (s *storeCheck) node(ctx context.Context) (preflight.Finding, error) {
	known, err := knowsNode(ctx, s.store, s.cfg.EtcdPrefix, s.cfg.Node)
	switch {
	case err != nil:
		return preflight.Finding{}, err
	case known.named:
		return preflight.Fine("%s", s.cfg.Node), nil
	case len(known.others) == 0:
		return preflight.Warn(errors.New("no Pod or Node object names any node"), ""), nil
	}
	return preflight.Warn(fmt.Errorf("no Pod or Node object names node %q", s.cfg.Node), known.remedy(s.cfg.Node)), nil
}

// nodeNames is what the store has of the name of a node.
type nodeNames struct {
	named  bool     // an object names the node
	others []string // nodes that objects name instead, sorted
}

// nodeStore is where names of nodes are looked for.
type nodeStore interface {
	follow.Store
	Revision(ctx context.Context, key string) (int64, error)
}

// knowsNode looks for a Node object, and for pods of the node where there is none.
func knowsNode(ctx context.Context, s nodeStore, prefix, name string) (nodeNames, error) {
	if revision, err := s.Revision(ctx, model.Key(prefix, model.ID{Kind: model.KindNode, Name: name})); err != nil || revision > 0 {
		return nodeNames{named: revision > 0}, err
	}
	others := map[string]bool{}
	for _, kind := range []model.Kind{model.KindNode, model.KindPod} {
		entries, _, err := s.List(ctx, model.KindRoot(prefix, kind))
		if err != nil {
			return nodeNames{}, err
		}
		state := decodeState(prefix, entries, noneInForce)
		for _, n := range state.Nodes {
			others[n.GetName()] = true
		}
		for _, p := range state.Pods {
			others[p.GetNodeName()] = true
		}
	}
	delete(others, "") // pods that are not scheduled yet
	return nodeNames{others[name], slices.Sorted(maps.Keys(others))}, nil
}

// mostNames is how many nodes a remedy lists.
const mostNames = 5

// remedy says which name was probably meant.
func (n nodeNames) remedy(name string) string {
	if likely, ok := ksr.Nearest(name, n.others); ok {
		return fmt.Sprintf("did you mean --node %s?", likely)
	}
	names := strings.Join(n.others[:min(len(n.others), mostNames)], ", ")
	if more := len(n.others) - mostNames; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return "--node is one of " + names
}

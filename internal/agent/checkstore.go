package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// storeTime bounds the first answer of etcd, so that what follows in a check fits into its limit.
const storeTime = 1500 * time.Millisecond

// storeCheck asks etcd. Its checks are made in their order: the first connects, and those that
// follow find nothing when it could not.
type storeCheck struct {
	cfg   config.Config
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
	etcd, err := s.cfg.Store.Etcd.Client()
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
	return preflight.Fine("%s", strings.Join(s.cfg.Store.Etcd.Endpoints, ", "))
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
		return preflight.Fail(err, fmt.Sprintf("grant the user of the agent read below %s/, see docs/guide/ksr.md", s.cfg.Store.Prefix))
	}
}

func (s *storeCheck) reflector(ctx context.Context) (preflight.Finding, error) {
	revision, err := s.store.Revision(ctx, model.LeaderKey(s.cfg.Store.Prefix, "ksr"))
	if err != nil || revision > 0 {
		return preflight.Fine("it writes below %s/", s.cfg.Store.Prefix), err
	}
	return preflight.Warn(fmt.Errorf("no active reflector below %s/; state may be stale", s.cfg.Store.Prefix),
		"start sluice-ksr with the same --etcd-prefix and --etcd-endpoints"), nil
}

func (s *storeCheck) state(ctx context.Context) (preflight.Finding, error) {
	root := model.Root(s.cfg.Store.Prefix)
	revision, err := s.store.Newest(ctx, root)
	if err != nil || revision > 0 {
		return preflight.Fine("revision %d below %s", revision, root), err
	}
	return preflight.Warn(fmt.Errorf("etcd has no state below %s", root), "start sluice-ksr, or see --etcd-prefix"), nil
}

func (s *storeCheck) node(ctx context.Context) (preflight.Finding, error) {
	known, err := cluster.NamesOf(ctx, s.store, s.cfg.Store.Prefix, s.cfg.Node.Name)
	switch {
	case err != nil:
		return preflight.Finding{}, err
	case known.Named:
		return preflight.Fine("%s", s.cfg.Node.Name), nil
	case len(known.Others) == 0:
		return preflight.Warn(errors.New("no Pod or Node object names any node"), ""), nil
	}
	return preflight.Warn(fmt.Errorf("no Pod or Node object names node %q", s.cfg.Node.Name), known.Remedy(s.cfg.Node.Name)), nil
}

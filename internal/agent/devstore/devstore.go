// Package devstore is the etcd that "sluice-agent dev" has in its process. Only sluice-dev links
// it.
package devstore

import (
	"context"
	"log/slog"

	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
)

// Start starts an etcd that serves a free port of the loopback. It is an agent.StartStore.
func Start(ctx context.Context, dir string, log *slog.Logger) (agent.EmbeddedStore, error) {
	server, err := embedded.Start(ctx, embedded.Config{Dir: dir, ClientURL: "http://127.0.0.1:0", Log: log})
	if err != nil {
		return nil, err // not a nil server in an interface
	}
	return server, nil
}

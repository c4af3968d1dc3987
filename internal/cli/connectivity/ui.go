package connectivity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/preview"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/ui"
	"github.com/sluice-net/sluice/internal/view"
)

// page has the options of ui.
type page struct {
	Host
	address   string
	hosts     []string
	manifests []string
	from      string
}

func newUI(h Host) *cobra.Command {
	p := &page{Host: h}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page: map, matrix, pods, explanations, verdicts, previews",
		Long: `Serve a page for a browser until it is interrupted, and print its address. It shows the service map,
the matrix, pods with their policies and rules, explanations, verdicts of packets as they are made,
previews of pasted manifests, and the status of nodes. It changes nothing.

The page shows an agent, manifests (--manifests), or a bundle (--from). It listens on the loopback
address. The printed address has a new token after the #, which every request needs. From another
machine use ssh -L PORT:127.0.0.1:PORT NODE. --address 0.0.0.0:PORT listens for other hosts,
without encryption.`,
		Example: `  sluicectl ui
  sluicectl ui --address :8417
  sluicectl ui --manifests docs/examples/shop
  sluicectl ui --from node-1.tgz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.serve(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&p.address, "address", "127.0.0.1:0", "host:port to listen on; without a host: loopback; port 0: any that is free")
	f.StringSliceVar(&p.hosts, "host", nil, "name by which browsers may reach the page, besides localhost and addresses (repeatable)")
	f.StringSliceVar(&p.manifests, "manifests", nil, "manifest, or directory of manifests, to show instead of an agent (repeatable)")
	f.StringVar(&p.from, "from", "agent", "whose state it is: that of the agent, or of a bundle (see sluicectl bundle)")
	p.AllowProblems(cmd)
	cmd.MarkFlagsMutuallyExclusive("manifests", "from")
	return cmd
}

func (p *page) serve(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	source, err := p.source(cmd)
	if err != nil {
		return err
	}
	if _, err := source.State(ctx); err != nil {
		return err // now, rather than on the page
	}
	l, err := serve.Listen(ctx, p.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	token := newToken()
	w := term.NewWriter(p.Out)
	w.Printf("the page of the %s is at\n  %s\nuntil this program is interrupted\n", source.Name, address(l.Addr(), token))
	if a, err := netip.ParseAddrPort(l.Addr().String()); err == nil && !a.Addr().Unmap().IsLoopback() {
		e := term.NewWriter(cmd.ErrOrStderr())
		e.Printf("%s\n", e.Styled(term.Amber, "other hosts can reach it, and traffic to it is not encrypted: who sees the traffic has the token"))
	}
	if err := w.Err(); err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(ui.Path, ui.Handler(source, ui.Guard{Token: token, Hosts: p.hosts}))
	mux.Handle("/{$}", http.RedirectHandler(ui.Path, http.StatusFound))
	return serve.Server{Handler: mux, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}.Serve(ctx, l)
}

// newToken returns a secret that cannot be guessed.
func newToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// address returns where a browser on this machine finds the page. What is behind the # stays in the
// browser.
func address(a net.Addr, token string) string {
	host, port, err := net.SplitHostPort(a.String())
	if ip, parseErr := netip.ParseAddr(host); err == nil && parseErr == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + ui.Path + "#token=" + token
}

// source returns what the page shows.
func (p *page) source(cmd *cobra.Command) (ui.Source, error) {
	paths := p.manifests
	if p.from != "agent" {
		if !bundle.Is(p.from) {
			return ui.Source{}, fmt.Errorf("--from %q: want agent, or the file of a bundle", p.from)
		}
		paths = []string{p.from}
	}
	s := ui.Source{Renderers: preview.Renderers}
	if len(paths) > 0 {
		m, err := p.Cluster(cmd.Context(), cmd.ErrOrStderr(), paths)
		s.Name = "files " + strings.Join(paths, ", ")
		s.State = func(context.Context) (explain.Manifests, error) { return m, nil }
		return s, err
	}
	s.Name = "agent"
	var status view.Status
	if err := p.Get(cmd.Context(), "/v1/status", &status); err != nil {
		return s, err
	}
	if status.Node != "" {
		s.Name += " on " + status.Node
	}
	s.State = func(ctx context.Context) (explain.Manifests, error) {
		var notes strings.Builder
		return p.Cluster(ctx, &notes, nil)
	}
	s.Explain = p.Explain
	s.Agent = remote{p.Host}
	return s, nil
}

// remote is the agent behind a socket.
type remote struct{ Host }

func filter(namespace, name string) string {
	return "?" + url.Values{"namespace": {namespace}, "name": {name}}.Encode()
}

// Pods implements ui.Agent.
func (r remote) Pods(ctx context.Context, namespace, name string) (out []view.Pod, err error) {
	err = r.Get(ctx, "/v1/pods"+filter(namespace, name), &out)
	return out, err
}

// Rules implements ui.Agent.
func (r remote) Rules(ctx context.Context, namespace, name string) (out []view.Rule, err error) {
	err = r.Get(ctx, "/v1/rules"+filter(namespace, name), &out)
	return out, err
}

// Status implements ui.Agent.
func (r remote) Status(ctx context.Context) (out view.Status, err error) {
	err = r.Get(ctx, "/v1/status", &out)
	return out, err
}

// Nodes implements ui.Agent.
func (r remote) Nodes(ctx context.Context) (out []view.NodeEnforcement, err error) {
	err = r.Get(ctx, "/v1/nodes", &out)
	return out, err
}

// Watch implements ui.Agent.
func (r remote) Watch(ctx context.Context, q view.Watch, begun func(), send func(any) error) error {
	var unsent error
	err := r.Stream(ctx, "/v1/verdicts", q, false, begun, func(line json.RawMessage) error {
		unsent = send(line)
		return unsent
	})
	if unsent != nil || ctx.Err() != nil {
		return nil // who watched has gone
	}
	return err
}

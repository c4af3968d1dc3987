package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/backends"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// EmbeddedStore is the store of "dev", in this process.
type EmbeddedStore interface {
	Client() *kvstore.Client
	Endpoints() []string // at least one
	Close() error
}

// StartStore starts the store of "dev". An empty dir is a temporary one. The agent of a node links
// no store: docs/design/build.md.
type StartStore func(ctx context.Context, dir string, log *slog.Logger) (EmbeddedStore, error)

// dev runs everything in this process: manifests -> etcd -> pipeline -> vswitch.
func dev(ctx context.Context, cfg config.Config, start StartStore, log *slog.Logger, tail *logtail.Tail, out io.Writer) (err error) {
	cfg.VPP.Socket = "" // the dataplane is embedded
	if err := preflight.OurFolder(cfg.Dev.EtcdDir); err != nil {
		return fmt.Errorf("--etcd-dir: %w: %s", err, preflight.OursRemedy)
	}
	server, err := start(ctx, cfg.Dev.EtcdDir, etcdLog(cfg, log))
	if err != nil {
		return ended(err) // stopped before it had started
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	a, err := newAgent(cfg, log, server.Client(), "manifests in "+cfg.Dev.Manifests)
	if err != nil {
		return err
	}
	reflector := reflect.NewReflector(a.store, cfg.Store.Prefix, log.With("plugin", "ksr"))
	a.api.Answers.Reflector, a.api.About.Log = reflector, tail.Last
	d := &devSession{Agent: a, vswitch: find[*backends.Vswitch](a.backends), out: term.NewWriter(out), etcd: fmt.Sprint(server.Endpoints()[0]), synced: make(chan struct{})}
	d.directory = manifests.NewDirectory(cfg.Dev.Manifests, reflector, log.With("plugin", "ksr"), d.loaded, cfg.Dev.Reading()...)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-d.synced: // before that the store is not whole
		case <-ctx.Done():
		}
		return a.Run(ctx)
	})
	if cfg.Dev.VswitchSocket != "" {
		g.Go(func() error { return d.serveVswitch(ctx, cfg.Dev.VswitchSocket) })
	}
	g.Go(func() error {
		defer cancel()
		return ended(d.run(ctx))
	})
	return g.Wait()
}

// etcdLog keeps what etcd says of its own starting and stopping for those who debug.
func etcdLog(cfg config.Config, log *slog.Logger) *slog.Logger {
	if level, err := settings.Level(cfg.Log.Level); err == nil && level > slog.LevelDebug {
		return slog.New(slog.DiscardHandler)
	}
	return log.With("plugin", "etcd")
}

// devSession is what a person sees of an agent in development.
type devSession struct {
	*Agent
	vswitch   *backends.Vswitch
	out       *term.Writer
	etcd      string
	directory *manifests.Directory
	synced    chan struct{} // closed when the store has the manifests

	mu       sync.Mutex // of out once the report is printed, and of what loaded sets
	load     manifests.Load
	reported []api.Problem
	noted    []api.Problem
}

// serveVswitch lets other GoVPP clients program the embedded dataplane.
func (d *devSession) serveVswitch(ctx context.Context, path string) error {
	l, err := socket.Listen(ctx, path, socket.NoGroup)
	if err != nil {
		return err
	}
	return ended(d.vswitch.Serve(ctx, l))
}

// loaded is called by the directory after every load; it prints notes and problems
// that are new.
func (d *devSession) loaded(load manifests.Load) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.load = load
	for _, n := range load.Notes {
		if !slices.Contains(d.noted, n) {
			d.out.Printf("note  %s\n", n.Error())
		}
	}
	d.noted = slices.Clone(load.Notes)
	for _, p := range load.Problems {
		if !slices.Contains(d.reported, p) {
			d.metrics.Problem()
			d.out.Printf("%s\n", d.out.Styled(term.Red, "problem  "+p.Error()))
		}
	}
	if len(load.Problems) == 0 && len(d.reported) > 0 {
		d.out.Printf("%s\n", d.out.Styled(term.Green, "all manifests are right again"))
	}
	d.reported = slices.Clone(load.Problems)
	d.problems.Manifests.Replace(d.reported)
}

func (d *devSession) run(ctx context.Context) error {
	if _, err := d.directory.Sync(ctx); err != nil {
		return err
	}
	close(d.synced)
	if err := d.firstEnforced(ctx); err != nil {
		return err
	}
	select {
	case <-d.metrics.Happened(): // what the report shows already
	default:
	}
	shown, err := d.report(ctx)
	switch {
	case err != nil:
		return err
	case d.cfg.Dev.Once && shown.matrix.Differ > 0:
		return fmt.Errorf("%s not as specified: please report this", term.Count(shown.matrix.Differ, "verdict"))
	case d.cfg.Dev.Once:
		return d.out.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.directory.Run(ctx) })
	g.Go(func() error { return d.follow(ctx, shown) })
	return g.Wait()
}

// firstEnforced waits until the manifests are enforced, as long as that takes, and prints every few
// seconds what it waits for.
func (d *devSession) firstEnforced(ctx context.Context) error {
	for {
		moment, cancel := context.WithTimeout(ctx, progressEvery)
		err := d.cluster.Enforced(moment)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		d.out.Printf("still working: %v\n", err)
	}
}

// progressEvery is how often dev prints what it waits for.
const progressEvery = 10 * time.Second

// report prints what was started, what was rendered, and who can talk to whom.
// It returns the moment that it shows.
func (d *devSession) report(ctx context.Context) (moment, error) {
	now, err := d.moment(ctx)
	if err != nil {
		return now, err
	}
	status := now.status
	w := d.out
	w.Printf("%s\n", w.Styled(term.Bold, "Sluice, everything embedded in this process"))
	t := &term.Table{Indent: "  "}
	t.Row("manifests", fmt.Sprintf("%s: %s: %s", d.cfg.Dev.Manifests, term.Count(d.load.Files, "file"), now.counts))
	t.Row("etcd", "embedded, "+d.etcd)
	t.Row("vswitch", fmt.Sprintf("embedded, %s, VPP binary API %s", term.Count(d.vswitch.Pods(), "interface"), d.vswitchDoor()))
	t.Row("debug API", d.cfg.Listen.APISocket)
	t.Print(w)
	r := status.Renderers[0]
	w.Printf("\n%s %s enforced in %s as %s, %s\n", w.Styled(term.Bold, "Rendered:"), term.Count(status.Policies, "policy"),
		round(d.metrics.LastDuration()), term.Count(status.Sets, "address set"), installed(r))
	w.Printf("\n%s\n", w.Styled(term.Bold, "Who can talk to whom"))
	now.matrix.Write(w)
	w.Printf("%s %s\n", w.Styled(term.Faint, term.Count(now.matrix.Probes, "packet")+" sent through the dataplane;"), d.agreement(now.matrix.Differ))
	w.Printf("\n%s\n", w.Styled(term.Bold, "What is open"))
	now.matrix.WriteOpen(w)
	if !d.cfg.Dev.Once {
		d.hints()
	}
	return now, nil
}

func (d *devSession) vswitchDoor() string {
	if d.cfg.Dev.VswitchSocket != "" {
		return "in-process and on " + d.cfg.Dev.VswitchSocket
	}
	return "in-process"
}

// agreement reports whether the dataplane does what the specification says.
func (d *devSession) agreement(differ int) term.Text {
	if differ == 0 {
		return d.out.Styled(term.Green, "every verdict is that of the specification")
	}
	return d.out.Styled(term.Red, "DIFFERENT from the specification: "+term.Count(differ, "verdict")+"; please report this")
}

func (d *devSession) hints() {
	socket := ""
	if d.cfg.Listen.APISocket != view.DefaultSocket() {
		socket = " --socket " + d.cfg.Listen.APISocket
	}
	d.out.Printf("\nFollowing %s: edit a manifest and see what changes. Ctrl-C ends.\n", d.cfg.Dev.Manifests)
	d.out.Printf("In another terminal: bin/sluicectl%s explain SRC DST:PORT/PROTO, or get pods|policies|sets|tables|rules.\n", socket)
}

// follow prints what changes from the moment that was shown, after every transaction that changed
// something: a renderer also looks again when interfaces come and go.
func (d *devSession) follow(ctx context.Context, shown moment) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.metrics.Happened():
		}
		if !d.node.Plugin.Status().BusySince.IsZero() {
			continue // there is another one when the dataplane has it
		}
		now, err := d.moment(ctx)
		if err != nil {
			return err
		}
		changed := now.matrix.Diff(shown.matrix.Matrix)
		if now.status.Revision != shown.status.Revision || len(changed) > 0 || now.matrix.Differ > 0 {
			d.changes(now.status, now.matrix.Differ, changesBetween(shown, now, changed))
		}
		shown = now
	}
}

// moment asks who can talk to whom, by the policies that are enforced or will be soon.
func (d *devSession) moment(ctx context.Context) (moment, error) {
	status, err := d.api.Lists.Status(ctx) // first: what comes after it has another revision
	if err != nil {
		return moment{}, err
	}
	m, state, err := d.api.Answers.Matrix(ctx, matrix.Selection{})
	if err != nil {
		return moment{}, err
	}
	out := newMoment(state, d.api.Answers.Specification(state))
	out.matrix, out.status, out.counts = m, status, state.Counts()
	return out, nil
}

// changes prints what a transaction changed, by policy.
func (d *devSession) changes(status view.Status, differ int, changed []policyChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := status.Renderers[0]
	d.out.Printf("%s  revision %d enforced in %s: %s, %s, %s; %s\n",
		time.Now().Format(time.TimeOnly), status.Revision, round(d.metrics.LastDuration()), term.Count(status.Policies, "policy"),
		term.Count(status.Sets, "set"), installed(r), d.agreement(differ))
	const most = 20
	for _, c := range changed[:min(len(changed), most)] {
		writeChange(d.out, c)
	}
	if more := len(changed) - most; more > 0 {
		d.out.Printf("  and %s of policies\n", term.Count(more, "more change"))
	}
}

// installed returns what the policies take in the dataplane.
func installed(r view.RendererStatus) string {
	return fmt.Sprintf("%s, %s, %s", term.Count(r.Tables, "table"), term.Count(r.Rules, "rule"), term.Count(r.Entries, "ACL entry"))
}

// round cuts a duration to what people want to read.
func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

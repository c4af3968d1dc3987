package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// Options of a run.
type Options struct {
	// Flows bounds how many flows are compared with the oracle after every change; where
	// a state has more, that many are drawn.
	Flows int
}

// Run runs the file over dataplanes of one kind. A failure ends the test and is reported with the
// file and the line.
func Run(t testing.TB, file string, kind backends.Kind, options Options) {
	t.Helper()
	r := &runner{kind: kind, options: options}
	defer func() {
		if err := r.close(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}()
	datadriven.RunTestAny(t, file, func(t testing.TB, d *datadriven.TestData) string {
		t.Helper()
		out, err := r.run(t.Context(), command{TestData: d})
		if err != nil {
			t.Fatalf("%s: %s: %v", d.Pos, d.Cmd, err)
		}
		return out
	})
}

// runner is the run of one file.
type runner struct {
	kind    backends.Kind
	options Options
	scene
	log operationLog
}

// scene is what a file has made so far.
type scene struct {
	world   *world
	subject *subject // nil before the first cluster
}

// command is one command of a file with its words.
type command struct {
	*datadriven.TestData
}

// line returns the command as a statement.
func (c command) line() line { return line{c.Cmd, slices.Clone(c.CmdArgs)} }

// errNoInput is the error of a command with lines that mean nothing.
var errNoInput = errors.New("the command takes no lines")

// commands are those that are no statements; statements are commands, too.
func (r *runner) commands() map[string]func(context.Context, command) (string, error) {
	asks, sends, looks := questions{r.scene}, sessions{r.scene}, inspection{r.scene, r.log}
	return map[string]func(context.Context, command) (string, error){
		"cluster": r.cluster, "change": r.change, "policy": r.policy, "anp": r.tier, "banp": r.tier, "cnp": r.tier,
		"resync": r.resync, "restart": r.restart, "same-as-fresh": r.sameAsFresh,
		"verdicts": asks.verdicts, "allow": asks.allow, "deny": asks.deny, "explain": asks.explain,
		"tables": looks.tables, "operations": looks.operations, "problems": looks.problems, "notes": looks.notes,
		"establish": sends.establish, "established": sends.established, "collide": sends.collide,
		"send": sends.send, "reply": sends.reply, "packet": sends.packet,
	}
}

func (r *runner) run(ctx context.Context, c command) (string, error) {
	commands := r.commands()
	if do, ok := commands[c.Cmd]; ok {
		if r.subject == nil && c.Cmd != "cluster" {
			return "", errors.New("a file begins with cluster")
		}
		return do(ctx, c)
	}
	if _, ok := verbs[c.Cmd]; ok && r.subject != nil {
		if c.Input != "" {
			return "", errNoInput
		}
		return r.apply(ctx, []line{c.line()})
	}
	known := append(slices.Collect(maps.Keys(commands)), slices.Collect(maps.Keys(verbs))...)
	slices.Sort(known)
	return "", fmt.Errorf("the command is none of %s", strings.Join(known, ", "))
}

func (r *runner) close() error {
	if r.subject == nil {
		return nil
	}
	return r.subject.close()
}

// cluster starts from nothing. With deny-node, nodes have no exemption.
func (r *runner) cluster(ctx context.Context, c command) (string, error) {
	l := c.line()
	var options harness.Options
	if len(l.args) == 1 && l.args[0].String() == "deny-node" {
		options.DenyNode, l.args = true, nil
	}
	lines, err := parseLines(c.Input)
	if err := errors.Join(err, l.end(), r.close()); err != nil {
		return "", err
	}
	r.world, r.log = newWorld(), operationLog{}
	r.subject = &subject{kind: r.kind, options: options, flows: r.options.Flows}
	if err := r.world.change(lines); err != nil {
		return "", err
	}
	if len(r.world.state.Nodes) == 0 {
		return "", errors.New("want at least one node")
	}
	if err := r.subject.start(ctx, r.world.state); err != nil {
		return "", err
	}
	return r.checked(ctx)
}

// change applies statements as one change.
func (r *runner) change(ctx context.Context, c command) (string, error) {
	l := c.line()
	lines, err := parseLines(c.Input)
	if err := errors.Join(err, l.end()); err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "", errors.New("want lines with statements")
	}
	return r.apply(ctx, lines)
}

// apply changes the world and sends the changes.
func (r *runner) apply(ctx context.Context, lines []line) (string, error) {
	next := r.world.clone()
	if err := next.change(lines); err != nil {
		return "", err
	}
	if len(next.state.Nodes) != len(r.world.state.Nodes) {
		return "", errors.New("nodes are those of the command cluster")
	}
	return r.tell(ctx, next)
}

// policy adds or replaces a policy.
func (r *runner) policy(ctx context.Context, c command) (string, error) {
	l := c.line()
	name, err := l.take("namespace/name")
	if err != nil {
		return "", err
	}
	np, err := parsePolicy(name, c.Input)
	if err := errors.Join(err, l.end()); err != nil {
		return "", err
	}
	next := r.world.clone()
	if err := next.put(np); err != nil {
		return "", err
	}
	return r.tell(ctx, next)
}

// tell sends the next world to the nodes.
func (r *runner) tell(ctx context.Context, next *world) (string, error) {
	r.world = next
	if err := r.subject.apply(ctx, next.state); err != nil {
		return "", err
	}
	return r.checked(ctx)
}

// checked proves what must hold, and reports whether objects have problems.
func (r *runner) checked(ctx context.Context) (string, error) {
	if err := r.subject.check(ctx); err != nil {
		return "", err
	}
	problems, err := r.allProblems(ctx)
	switch {
	case err != nil:
		return "", err
	case len(problems) == 1:
		return "ok, 1 problem", nil
	case len(problems) > 1:
		return fmt.Sprintf("ok, %d problems", len(problems)), nil
	}
	return "ok", nil
}

// plain ends a command that takes neither words nor lines.
func (c command) plain() error {
	l := c.line()
	if c.Input != "" {
		return errNoInput
	}
	return l.end()
}

// resync sends the whole state to all nodes.
func (r *runner) resync(ctx context.Context, c command) (string, error) {
	before := r.subject.running.Operations()
	if err := errors.Join(c.plain(), r.subject.resync(ctx)); err != nil {
		return "", err
	}
	n := r.subject.running.Operations() - before
	if _, err := r.checked(ctx); err != nil {
		return "", err
	}
	return count(n), nil
}

// restart replaces the agent of a node, which finds what its dataplane has. Lines are what
// changes while it is away.
func (r *runner) restart(ctx context.Context, c command) (string, error) {
	l := c.line()
	name, errName := l.take("the name of a node")
	lines, errLines := parseLines(c.Input)
	if err := errors.Join(errName, l.end(), errLines); err != nil {
		return "", err
	}
	next := r.world.clone()
	if err := next.change(lines); err != nil {
		return "", err
	}
	n, err := r.subject.restart(ctx, name, next.state)
	if err != nil {
		return "", err
	}
	r.world = next
	r.log.of(name).received = r.subject.running.Node(name).Desired.Operations() // its Recorder is a new one
	out, err := r.checked(ctx)
	if err == nil && lines == nil {
		out = count(n)
	}
	return out, err
}

func count(n int) string {
	switch n {
	case 0:
		return "no operations"
	case 1:
		return "1 operation"
	}
	return fmt.Sprintf("%d operations", n)
}

// sameAsFresh checks explicitly, for readers, what every change checks anyway.
func (r *runner) sameAsFresh(ctx context.Context, c command) (string, error) {
	if err := errors.Join(c.plain(), r.subject.check(ctx, harness.Verdict, harness.Again)); err != nil {
		return "", err
	}
	return "yes", nil
}

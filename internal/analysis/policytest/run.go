package policytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options change how a test runs. The zero value is the usual way.
type Options struct {
	// MaxListed is how many mismatches, and how many disagreements, a report lists
	// and explains; all of them are counted. 0 means 1000, a negative number all.
	MaxListed int
	// Timeout limits the whole test; 0 is no limit. Results until then are reported.
	Timeout time.Duration
}

func (o Options) limit() int {
	if o.MaxListed == 0 {
		return 1000
	}
	return o.MaxListed
}

// Run runs one file through subjects that know of no object yet.
func Run(ctx context.Context, f *File, subjects []Subject, o Options) (Report, error) {
	return NewRunner(subjects...).Run(ctx, f, o)
}

// Runner runs files one after the other through the same running subjects, each
// from where the one before ended. It is used by one goroutine at a time.
type Runner struct {
	subjects []Subject
	world    *world // what every subject has received
	failed   error  // of a subject, whose state is unknown since then
}

// NewRunner returns a runner of subjects that know of no object yet. They are
// asked in this order; closing them is left to the caller.
func NewRunner(subjects ...Subject) *Runner {
	return &Runner{subjects: subjects, world: newWorld()}
}

// Run runs a file. The error says that the test could not be carried out, or only
// in part: Problems where the file or a manifest is wrong, else the error of a
// subject. The report has it too, beside what was found nevertheless.
func (r *Runner) Run(ctx context.Context, f *File, o Options) (Report, error) {
	rep := newReport(f, r.subjects)
	err := r.runFor(ctx, f, &rep, o)
	if err != nil {
		rep.Errors = strings.Split(err.Error(), "\n")
	}
	return rep, err
}

// runFor runs a file for as long as it may take.
func (r *Runner) runFor(ctx context.Context, f *File, rep *Report, o Options) error {
	if o.Timeout <= 0 {
		return r.run(ctx, f, rep, o)
	}
	timed, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	err := r.run(timed, f, rep, o)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the test took longer than %s: %w", o.Timeout, err)
	}
	return err
}

func (r *Runner) run(ctx context.Context, f *File, rep *Report, o Options) error {
	if r.failed != nil {
		return fmt.Errorf("%s: not run after a failure: %w", f.Source, r.failed)
	}
	run := run{Runner: r, file: f, report: rep, limit: o.limit()}
	var problems Problems
	for _, s := range f.states() {
		found, err := run.step(ctx, s)
		problems = append(problems, found...)
		if err != nil {
			return errors.Join(problems.orNil(), fmt.Errorf("%s: %s: %w", f.Source, s.Title(), err))
		}
		if run.halted {
			break
		}
	}
	return problems.orNil()
}

// run is one file on its way.
type run struct {
	*Runner
	file   *File
	report *Report
	limit  int
	halted bool // a state could not be built, so later ones would mean nothing
}

// step changes the state and runs the probes of the step.
func (r *run) step(ctx context.Context, s Step) (Problems, error) {
	c, problems, err := r.change(s)
	if err != nil || len(problems) > 0 {
		r.halted = true
		return problems, err
	}
	if err := r.apply(ctx, c); err != nil {
		r.failed = err
		return nil, err
	}
	r.report.Steps++
	x := &expansion{world: r.world, file: r.file, step: s}
	for c := range x.checks() {
		if err := r.check(ctx, s, c); err != nil {
			return x.problems, err
		}
	}
	return x.problems, nil
}

// change brings the world to the state of a step. The first state replaces what
// an earlier file left. With problems nothing has changed.
func (r *run) change(s Step) (change, Problems, error) {
	m, err := r.file.manifests(s)
	if err != nil {
		return change{}, nil, err
	}
	if len(m.problems) > 0 && !r.file.AllowProblems {
		return change{}, m.problems, nil
	}
	r.report.Problems = append(r.report.Problems, m.problems...)
	if s.Path == "" {
		left := maps.Clone(r.world.objects)
		for _, o := range m.objects {
			delete(left, o.ID())
		}
		return r.world.apply(m.objects, slices.Collect(maps.Keys(left))), nil, nil
	}
	deletes, problems := r.world.deletions(r.file, s, m.objects)
	if len(problems) > 0 {
		return change{}, problems, nil
	}
	return r.world.apply(m.objects, deletes), nil, nil
}

// apply tells every subject the difference.
func (r *run) apply(ctx context.Context, c change) error {
	if c.isEmpty() {
		return nil
	}
	for i, s := range r.subjects {
		start := time.Now()
		err := s.Apply(ctx, c.upserts, c.deletes)
		r.report.Subjects[i].Applying += time.Since(start)
		if err != nil {
			return fmt.Errorf("apply to %s: %w", s.Name(), err)
		}
	}
	return nil
}

// check asks every subject one question and compares the answers.
func (r *run) check(ctx context.Context, s Step, c check) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.report.Probes++
	if c.noFlow != "" {
		r.mismatch(c.mismatch(s, "", NoFlow, c.noFlow))
		return nil
	}
	var allowed int
	answers := make([]Verdict, len(r.subjects))
	for i, subject := range r.subjects {
		if x, ok := subject.(Scope); ok && x.NotApplicable(c.question) {
			r.report.Subjects[i].Unasked++
			if answers[i] = c.expect; c.expect == verdictOf(true) {
				allowed++
			}
			continue
		}
		start := time.Now()
		a, err := subject.Ask(ctx, c.question)
		r.report.Subjects[i].Asking += time.Since(start)
		if err != nil {
			return fmt.Errorf("ask %s about %s: %w", subject.Name(), c.question.Flow, err)
		}
		r.report.Subjects[i].Probes++
		if answers[i] = verdictOf(a.Allowed); a.Allowed {
			allowed++
		}
	}
	if split := allowed > 0 && allowed < len(answers); split || slices.ContainsFunc(answers, func(v Verdict) bool { return v != c.expect }) {
		return r.differ(ctx, s, c, answers, split)
	}
	return nil
}

// differ records answers of which one at least is not what was expected, or which
// differ from each other.
func (r *run) differ(ctx context.Context, s Step, c check, answers []Verdict, split bool) error {
	d := Disagreement{Step: s.Title(), Position: c.position, Place: c.place()}
	for i, v := range answers {
		why, err := r.why(ctx, i, c.question, split)
		if err != nil {
			return err
		}
		d.Answers = append(d.Answers, SubjectAnswer{Subject: r.subjects[i].Name(), Got: v, Why: why})
		if v != c.expect {
			r.report.Subjects[i].Mismatches++
			r.mismatch(c.mismatch(s, r.subjects[i].Name(), v, why))
		}
	}
	if !split {
		return nil
	}
	if r.report.DisagreementCount++; r.limit < 0 || len(r.report.Disagreements) < r.limit {
		r.report.Disagreements = append(r.report.Disagreements, d)
	}
	return nil
}

// why asks again for the reason, while the report still has room for it.
func (r *run) why(ctx context.Context, i int, q Question, split bool) (string, error) {
	full := func(n int) bool { return r.limit >= 0 && n >= r.limit }
	if full(len(r.report.Mismatches)) && (!split || full(len(r.report.Disagreements))) {
		return "", nil
	}
	q.Explain = true
	a, err := r.subjects[i].Ask(ctx, q)
	if err != nil {
		return "", fmt.Errorf("ask %s about %s: %w", r.subjects[i].Name(), q.Flow, err)
	}
	return a.Why, nil
}

func (r *run) mismatch(m Mismatch) {
	if r.report.MismatchCount++; r.limit < 0 || len(r.report.Mismatches) < r.limit {
		r.report.Mismatches = append(r.report.Mismatches, m)
	}
}

func (c check) place() Place {
	return Place{From: c.question.Src.Name, To: c.question.Dst.Name, Port: c.port.Number, PortName: c.port.Name,
		Protocol: protocolName(c.port.Protocol), Flow: c.question.Flow}
}

func (c check) mismatch(s Step, subject string, got Verdict, why string) Mismatch {
	return Mismatch{Step: s.Title(), Position: c.position, Place: c.place(), Expected: c.expect, Got: got, Subject: subject, Why: why}
}

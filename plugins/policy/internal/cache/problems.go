package cache

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// problems holds the problems of objects.
type problems struct {
	all    map[model.ID][]api.Problem
	before map[model.ID][]api.Problem // of objects whose problems the current Update may change
	found  []api.Problem              // by the current or the last Update
	solved []api.Problem              // likewise
}

// begin begins an Update. A resync reports the problems of all objects anew.
func (x *problems) begin(resync bool) {
	x.found, x.solved, x.before = nil, nil, nil
	if resync {
		x.before, x.all = x.all, map[model.ID][]api.Problem{}
	}
}

// report replaces the problems of an object.
func (x *problems) report(id model.ID, problems []api.Problem) {
	if len(problems) == 0 && (len(x.all) == 0 || len(x.all[id]) == 0) {
		return
	}
	if x.before == nil {
		x.before = map[model.ID][]api.Problem{}
	}
	if _, noted := x.before[id]; !noted {
		x.before[id] = x.all[id]
	}
	if len(problems) == 0 {
		delete(x.all, id)
		return
	}
	for i := range problems {
		problems[i].Class = api.ClassObject
	}
	x.all[id] = problems
}

// end determines what the Update has changed.
func (x *problems) end() {
	for id, before := range x.before {
		x.found = append(x.found, api.ProblemsWithout(x.all[id], before)...)
		x.solved = append(x.solved, api.ProblemsWithout(before, x.all[id])...)
	}
	x.before = nil
	slices.SortFunc(x.found, api.Problem.Compare)
	slices.SortFunc(x.solved, api.Problem.Compare)
}

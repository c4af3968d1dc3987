package session

import (
	"go.fd.io/govpp/binapi/session"
)

// job is the change of one section.
type job struct {
	section
	present *present
	want    *wanted
	rounds  [][]step
}

// divide splits steps into rounds. A step of another kind than the previous one waits for the next
// round. Within a round steps may fail and succeed in any combination.
func divide(steps []step) (rounds [][]step) {
	for i, s := range steps {
		if i == 0 || steps[i-1].add != s.add || steps[i-1].action != s.action {
			rounds = append(rounds, nil)
		}
		rounds[len(rounds)-1] = append(rounds[len(rounds)-1], s)
	}
	return rounds
}

// appendRequests appends the requests of a round and treats them as done: after any error everything is read
// back.
func (j *job) appendRequests(changes []*session.SessionRuleAddDel, l *link, round []step) []*session.SessionRuleAddDel {
	for _, s := range round {
		tag := j.present.tags[s.place]
		if s.add {
			tag = tagOf(j.section, s.place, s.action, j.want.originOf(j.section))
			j.present.rules[s.place], j.present.tags[s.place] = s.action, tag
		} else {
			delete(j.present.rules, s.place)
			delete(j.present.tags, s.place)
		}
		changes = append(changes, l.change(j.section, s.add, s.place, s.action, tag))
	}
	return changes
}

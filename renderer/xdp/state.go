package xdp

// policyState is how the policy map in force relates to the image.
type policyState uint8

const (
	// policyUnknown: it is not the image's. The next plan is written to a new policy map.
	policyUnknown policyState = iota
	// policyAdopted: another process wrote it, and it enforces what is desired.
	policyAdopted
	// policyInstalled: it is the image's.
	policyInstalled
	// policyUnfinished: it is the image's but for a plan that failed. The next plan leads from
	// wherever endpoints are.
	policyUnfinished
)

// policyEvent changes a policyState.
type policyEvent uint8

const (
	policyMatched  policyEvent = iota // its mark is that of what is desired, and the same is attached
	policyRenewed                     // the image begins anew, or a new policy map is prepared
	policySwitched                    // a new policy map is in force; not everything is attached yet
	policyFailed                      // a plan was not carried out
	policyFinished                    // a plan was carried out
	policyChanged                     // somebody else wrote to it
)

// transitions are the states that events lead to, by the state before. An event that is not there
// changes nothing.
type transitions[S, E comparable] map[S]map[E]S

func (t transitions[S, E]) after(s S, e E) S {
	if next, ok := t[s][e]; ok {
		return next
	}
	return s
}

var policyTransitions = transitions[policyState, policyEvent]{
	policyUnknown: {
		policyMatched: policyAdopted, policyFinished: policyInstalled,
	},
	policyAdopted: { // it stays in force until another one is
		policySwitched: policyUnknown, policyFinished: policyInstalled, policyChanged: policyUnknown,
	},
	policyInstalled: {
		policyRenewed: policyUnknown, policySwitched: policyUnknown, policyFailed: policyUnfinished, policyChanged: policyUnknown,
	},
	policyUnfinished: {
		policyMatched: policyAdopted, policyRenewed: policyUnknown, policySwitched: policyUnknown, policyFinished: policyInstalled, policyChanged: policyUnknown,
	},
}

// after returns the state that an event leads to.
func (s policyState) after(e policyEvent) policyState { return policyTransitions.after(s, e) }

// isOurs reports whether plans can be carried out in place: the policy map in force is the image's.
func (s policyState) isOurs() bool { return s == policyInstalled || s == policyUnfinished }

// attachmentState is how far an endpoint is attached.
type attachmentState uint8

const (
	attachmentNone attachmentState = iota
	// attachmentBegun: it was to be attached, and there may be something to detach.
	attachmentBegun
	// attachmentDone: its packets are decided.
	attachmentDone
	// attachmentLost: they were decided, and are not any more: the interface was made again, or
	// somebody detached what was attached.
	attachmentLost
)

// attachmentEvent changes an attachmentState.
type attachmentEvent uint8

const (
	attachmentTried    attachmentEvent = iota // to attach begins
	attachmentSeen                            // the plane says that it is attached
	attachmentMissed                          // the plane says that it is not
	attachmentDetached                        // it is detached, and nothing leads to it
)

var attachmentTransitions = transitions[attachmentState, attachmentEvent]{
	attachmentNone:  {attachmentTried: attachmentBegun, attachmentSeen: attachmentDone},
	attachmentBegun: {attachmentSeen: attachmentDone, attachmentMissed: attachmentLost, attachmentDetached: attachmentNone},
	attachmentDone:  {attachmentMissed: attachmentLost, attachmentDetached: attachmentNone},
	attachmentLost:  {attachmentSeen: attachmentDone, attachmentDetached: attachmentNone}, // until it succeeds
}

// after returns the state that an event leads to.
func (s attachmentState) after(e attachmentEvent) attachmentState {
	return attachmentTransitions.after(s, e)
}

package xdp

// policyState is how the policy map in force relates to the image.
type policyState uint8

const (
	// policyUnknown: it was not written from the image. The next plan goes to a new policy map.
	policyUnknown policyState = iota
	// policyAdopted: an earlier process wrote it, and it enforces the desired policy.
	policyAdopted
	// policyInstalled: it has the content of the image.
	policyInstalled
	// policyUnfinished: it was written from the image, but a plan failed. The next plan must work
	// from any intermediate state.
	policyUnfinished
)

// policyEvent changes a policyState.
type policyEvent uint8

const (
	policyMatched  policyEvent = iota // it has the digest of the desired policy, and the desired endpoints are attached
	policyRenewed                     // the image starts anew, or a new policy map is prepared
	policySwitched                    // a new policy map is in force, but not everything is attached yet
	policyFailed                      // a plan failed
	policyFinished                    // a plan was carried out
	policyChanged                     // another process wrote to it
)

// transitions maps a state and an event to the next state. An event without an entry changes
// nothing.
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
	policyAdopted: { // it stays in force until another one replaces it
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

// isOurs reports whether the policy map in force was written from the image, so that plans can
// change it in place.
func (s policyState) isOurs() bool { return s == policyInstalled || s == policyUnfinished }

// attachmentState is the state of the attachment to an endpoint.
type attachmentState uint8

const (
	attachmentNone attachmentState = iota
	// attachmentBegun: attaching began, so there may be something to detach.
	attachmentBegun
	// attachmentDone: the program judges its packets.
	attachmentDone
	// attachmentLost: the program no longer filters its packets. The interface was recreated, or
	// another program detached it.
	attachmentLost
)

// attachmentEvent changes an attachmentState.
type attachmentEvent uint8

const (
	attachmentTried    attachmentEvent = iota // attaching begins
	attachmentSeen                            // the dataplane reports it as attached
	attachmentMissed                          // the dataplane does not report it
	attachmentDetached                        // it is detached, and has no record
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

package xdp

import "testing"

// TestPolicyStateTransitions has every event in every state.
func TestPolicyStateTransitions(t *testing.T) {
	u, a, i, f := policyUnknown, policyAdopted, policyInstalled, policyUnfinished
	for event, want := range map[policyEvent][4]policyState{ // by the state before: u, a, i, f
		policyMatched:  {a, a, i, a},
		policyRenewed:  {u, a, u, u},
		policySwitched: {u, u, u, u},
		policyFailed:   {u, a, f, f},
		policyFinished: {i, i, i, i},
		policyChanged:  {u, u, u, u},
	} {
		for before, after := range want {
			if got := policyState(before).after(event); got != after {
				t.Errorf("event %d in state %d leads to %d, want %d", event, before, got, after)
			}
		}
	}
	for state, ours := range map[policyState]bool{u: false, a: false, i: true, f: true} {
		if state.isOurs() != ours {
			t.Errorf("state %d is ours: %t, want %t", state, state.isOurs(), ours)
		}
	}
}

// TestAttachmentStateTransitions has every event in every state.
func TestAttachmentStateTransitions(t *testing.T) {
	n, b, d, l := attachmentNone, attachmentBegun, attachmentDone, attachmentLost
	for event, want := range map[attachmentEvent][4]attachmentState{ // by the state before: n, b, d, l
		attachmentTried:    {b, b, d, l},
		attachmentSeen:     {d, d, d, d},
		attachmentMissed:   {n, l, l, l},
		attachmentDetached: {n, n, n, n},
	} {
		for before, after := range want {
			if got := attachmentState(before).after(event); got != after {
				t.Errorf("event %d in state %d leads to %d, want %d", event, before, got, after)
			}
		}
	}
}

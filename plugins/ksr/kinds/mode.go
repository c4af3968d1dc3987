package kinds

// ModeAnnotation is the annotation of a policy of any kind that sets its mode: "audit" permits what
// only this policy denies, and counts it.
const ModeAnnotation = "sluice.io/mode"

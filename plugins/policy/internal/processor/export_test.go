package processor

// SetQuota sets what the NetworkPolicies of a namespace may take, before the first Flush.
func (p *Processor) SetQuota(units int) { p.resolver.quota = units }

// Takes returns what is counted of the NetworkPolicies of a namespace, and how many are refused.
func (p *Processor) Takes(namespace string) (units, refused int) {
	t := p.resolver.byName[namespace]
	if t == nil {
		return 0, 0
	}
	return p.resolver.takes(t), t.refused
}

package keeper

// LookAround does the periodic work of a keeper.
func (k *Keeper) LookAround() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.gates.inspect(k.reg.Endpoints())
	k.settle()
	return err
}

// InspectPods looks into the network namespaces of pods, as a keeper does every second.
func (k *Keeper) InspectPods() { k.inspectPods() }

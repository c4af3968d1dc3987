package keeper

// LookAround does the periodic work of a keeper.
func (k *Keeper) LookAround() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.gates.inspect(k.reg.Endpoints())
	k.settle()
	return err
}

package keeper

// LookAround does what a keeper does from time to time.
func (k *Keeper) LookAround() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.gates.inspect(k.reg.Endpoints())
	k.settle()
	return err
}

package embedded

import "context"

// GiveBack looks at the space once.
func (s *Server) GiveBack(ctx context.Context) error { return s.giveBack(ctx) }

package status

import "net/netip"

// AllPools is the container coe-status:pools.
type AllPools struct {
	Pools []PoolUse `json:"pool,omitempty"`
}

// PoolUse is what is used of a pool, and how many pods fit.
type PoolUse struct {
	Network string       `json:"network-id"`
	Subnet  netip.Prefix `json:"subnet"`
	From    netip.Addr   `json:"allocate-from,omitzero"`
	To      netip.Addr   `json:"allocate-to,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	Given   int          `json:"given"`
	Resting int          `json:"resting"`
	Blocks  int          `json:"blocks"`
	Fit     *int64       `json:"fit,string,omitempty"` // nil for the pool of services
}

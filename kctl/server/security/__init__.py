"""Who a client is and what it may do: SASL, authorization, delegation tokens."""

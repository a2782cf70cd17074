"""SASL on listeners: negotiation, mechanisms, and the channels of clients that authenticate."""

from kb.knowledge_base import KnowledgeBase as KnowledgeBase

__version__: str
